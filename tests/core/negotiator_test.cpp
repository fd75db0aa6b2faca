#include "coordinator/negotiator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kThreshold = 1024;
const Clock::time_point kStart{};

Request allreduce(const std::string& name, Shape shape = {4}) {
  Request request;
  request.name = name;
  request.shape = std::move(shape);
  return request;
}

std::vector<std::string> names(const Decision& decision) {
  return std::holds_alternative<Batch>(decision) ? std::get<Batch>(decision).names
                                                 : std::vector{std::get<Rejection>(decision).name};
}

TEST(Negotiator, DecidesOnlyWhatEveryRankHasSubmitted) {
  Negotiator negotiator(3, kThreshold);
  negotiator.submitted(2, {allreduce("a")}, kStart);
  negotiator.submitted(0, {allreduce("a")}, kStart);
  EXPECT_TRUE(negotiator.take(10).empty());
  negotiator.submitted(1, {allreduce("a")}, kStart);
  const auto decisions = negotiator.take(10);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_THAT(names(decisions[0]), ElementsAre("a"));
  EXPECT_TRUE(negotiator.take(10).empty());
}

TEST(Negotiator, OppositeOrdersAgreeOnTheOrderOfCompletion) {
  Negotiator negotiator(2, 0);
  negotiator.submitted(0, {allreduce("a"), allreduce("b"), allreduce("c")}, kStart);
  negotiator.submitted(1, {allreduce("c"), allreduce("b"), allreduce("a")}, kStart);
  const auto decisions = negotiator.take(10);
  ASSERT_EQ(decisions.size(), 3U);
  EXPECT_THAT(names(decisions[0]), ElementsAre("c"));
  EXPECT_THAT(names(decisions[1]), ElementsAre("b"));
  EXPECT_THAT(names(decisions[2]), ElementsAre("a"));
}

TEST(Negotiator, FusesWhatIsReadyTogetherAndKeepsTheRestForLater) {
  Negotiator negotiator(1, 32);  // two tensors of 16 bytes
  negotiator.submitted(0, {allreduce("a"), allreduce("b"), allreduce("c")}, kStart);
  const auto first = negotiator.take(1);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_THAT(names(first[0]), ElementsAre("a", "b"));
  const auto second = negotiator.take(1);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_THAT(names(second[0]), ElementsAre("c"));
}

TEST(Negotiator, MismatchNamesRanksAndValuesAndFreesTheName) {
  Negotiator negotiator(3, kThreshold);
  negotiator.submitted(0, {allreduce("a", {2, 3})}, kStart);
  negotiator.submitted(1, {allreduce("a", {2, 3})}, kStart);
  negotiator.submitted(2, {allreduce("a", {3, 2})}, kStart);  // the same count
  const auto decisions = negotiator.take(0);                  // rejections wait for no batch
  ASSERT_EQ(decisions.size(), 1U);
  const auto& rejection = std::get<Rejection>(decisions[0]);
  EXPECT_EQ(rejection.code, Errc::mismatch);
  EXPECT_THAT(rejection.message, HasSubstr("[2,3] on rank 0, 1"));
  EXPECT_THAT(rejection.message, HasSubstr("[3,2] on rank 2"));
  EXPECT_THAT(rejection.message, HasSubstr("'a'"));

  for (int rank = 0; rank < 3; ++rank) negotiator.submitted(rank, {allreduce("a")}, kStart);
  EXPECT_THAT(names(negotiator.take(1).at(0)), ElementsAre("a"));
}

TEST(Negotiator, EveryAgreedFieldIsCompared) {
  using Change = void (*)(Request&);
  const std::vector<std::pair<std::string, Change>> changes{
      {"operation", [](Request& r) { r.kind = OpKind::broadcast; }},
      {"dtype", [](Request& r) { r.dtype = DType::f16; }},
      {"shape", [](Request& r) { r.shape = {5}; }},
      {"reduce op", [](Request& r) { r.op = ReduceOp::max; }},
      {"device",
       [](Request& r) {
         r.device = {Device::Kind::cuda, 0};
       }},
      {"root", [](Request& r) { r.root = 1; }},
      {"prescale", [](Request& r) { r.prescale = 0.5; }},
      {"postscale", [](Request& r) { r.postscale = 2.0; }},
  };
  for (const auto& [field, change] : changes) {
    Negotiator negotiator(2, kThreshold);
    Request other = allreduce("a");
    change(other);
    negotiator.submitted(0, {allreduce("a")}, kStart);
    negotiator.submitted(1, {other}, kStart);
    const auto decisions = negotiator.take(1);
    ASSERT_EQ(decisions.size(), 1U) << field;
    ASSERT_TRUE(std::holds_alternative<Rejection>(decisions[0])) << field;
    EXPECT_THAT(std::get<Rejection>(decisions[0]).message, HasSubstr(field));
  }
}

TEST(Negotiator, AllgatherRanksContributeTheirOwnRows) {
  Negotiator negotiator(3, kThreshold);
  Request gather = allreduce("g", {2, 5});
  gather.kind = OpKind::allgather;
  negotiator.submitted(2, {gather}, kStart);
  gather.shape = {0, 5};
  negotiator.submitted(0, {gather}, kStart);
  gather.shape = {7, 5};
  negotiator.submitted(1, {gather}, kStart);
  const auto decisions = negotiator.take(1);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_THAT(std::get<Batch>(decisions[0]).first_dimensions, ElementsAre(ElementsAre(0, 7, 2)));

  gather.shape = {1, 6};  // another row length is a mismatch
  negotiator.submitted(0, {gather}, kStart);
  gather.shape = {1, 5};
  negotiator.submitted(1, {gather}, kStart);
  negotiator.submitted(2, {gather}, kStart);
  const auto mismatch = negotiator.take(1);
  EXPECT_THAT(std::get<Rejection>(mismatch.at(0)).message, HasSubstr("[*,6] on rank 0"));
}

TEST(Negotiator, ARankThatSubmitsANameTwiceIsBroken) {
  Negotiator negotiator(2, kThreshold);
  negotiator.submitted(1, {allreduce("a")}, kStart);
  EXPECT_THROW(negotiator.submitted(1, {allreduce("a")}, kStart), Error);
}

TEST(Negotiator, DepartureRejectsWhatIsPendingAndWhatComesLater) {
  Negotiator negotiator(2, kThreshold);
  negotiator.submitted(0, {allreduce("a")}, kStart);
  negotiator.departed(1);
  const auto pending = negotiator.take(1);
  ASSERT_EQ(pending.size(), 1U);
  EXPECT_EQ(std::get<Rejection>(pending[0]).code, Errc::shut_down);
  EXPECT_THAT(std::get<Rejection>(pending[0]).message, HasSubstr("rank 1"));
  negotiator.submitted(0, {allreduce("b")}, kStart);
  EXPECT_THAT(names(negotiator.take(1).at(0)), ElementsAre("b"));
  EXPECT_FALSE(negotiator.finished());
  negotiator.departed(0);
  EXPECT_TRUE(negotiator.finished());
}

TEST(Negotiator, WhatWasReadyBeforeADepartureStillRuns) {
  Negotiator negotiator(2, kThreshold);
  negotiator.submitted(0, {allreduce("a")}, kStart);
  negotiator.submitted(1, {allreduce("a")}, kStart);
  negotiator.departed(0);
  negotiator.departed(1);
  EXPECT_FALSE(negotiator.finished());
  EXPECT_THAT(names(negotiator.take(1).at(0)), ElementsAre("a"));
  EXPECT_TRUE(negotiator.finished());
}

TEST(Negotiator, StallsNameWhoIsMissingOldestFirst) {
  Negotiator negotiator(3, kThreshold);
  negotiator.submitted(1, {allreduce("z")}, kStart);
  negotiator.submitted(1, {allreduce("a")}, kStart + seconds(5));
  negotiator.submitted(0, {allreduce("z")}, kStart + seconds(6));
  EXPECT_TRUE(negotiator.stalls(kStart + seconds(9), seconds(10)).empty());
  const auto stalls = negotiator.stalls(kStart + seconds(15), seconds(10));
  ASSERT_EQ(stalls.size(), 2U);
  EXPECT_EQ(stalls[0].name, "z");
  EXPECT_THAT(stalls[0].submitted, ElementsAre(0, 1));
  EXPECT_THAT(stalls[0].missing, ElementsAre(2));
  EXPECT_EQ(stalls[1].name, "a");
  EXPECT_THAT(stalls[1].missing, ElementsAre(0, 2));
}

}  // namespace
}  // namespace hvd
