#include "policy/negotiator.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using std::chrono::seconds;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::UnorderedElementsAre;
using testing::UnorderedElementsAreArray;

constexpr std::size_t kThreshold = 1024;
const Clock::time_point kStart{};

Request allreduce(const std::string& name, Shape shape = {4}) {
  Request request;
  request.name = name;
  request.shape = std::move(shape);
  return request;
}

Announcement announced(Request request, std::uint32_t segment = 0) {
  return {std::move(request), segment};
}

/// A negotiator that accepts plain requests.
class TestNegotiator : public Negotiator {
 public:
  using Negotiator::Negotiator;
  void submitted(int rank, const std::vector<Request>& requests, Clock::time_point now = kStart) {
    std::vector<Announcement> operations;
    for (const Request& request : requests) operations.push_back(announced(request));
    Negotiator::submitted({rank}, std::move(operations), now);
  }
};

const Rejection& rejection(const Agreement& agreement) {
  if (const auto* partial = std::get_if<PartialRejection>(&agreement)) return partial->rejection;
  return std::get<Rejection>(std::get<Decision>(agreement));
}

std::vector<std::string> names(const Agreement& agreement) {
  if (!std::holds_alternative<FusedTensors>(agreement)) return {rejection(agreement).name};
  std::vector<std::string> names;
  for (const ReadyTensor& tensor : std::get<FusedTensors>(agreement)) {
    names.push_back(tensor.request.name);
  }
  return names;
}

TEST(Negotiator, DecidesOnlyWhatEveryRankHasSubmitted) {
  TestNegotiator negotiator(3, kThreshold);
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
  TestNegotiator negotiator(2, 0);
  negotiator.submitted(0, {allreduce("a"), allreduce("b"), allreduce("c")}, kStart);
  negotiator.submitted(1, {allreduce("c"), allreduce("b"), allreduce("a")}, kStart);
  const auto decisions = negotiator.take(10);
  ASSERT_EQ(decisions.size(), 3U);
  EXPECT_THAT(names(decisions[0]), ElementsAre("c"));
  EXPECT_THAT(names(decisions[1]), ElementsAre("b"));
  EXPECT_THAT(names(decisions[2]), ElementsAre("a"));
}

TEST(Negotiator, FusesWhatIsReadyTogetherAndKeepsTheRestForLater) {
  TestNegotiator negotiator(1, 32);  // two tensors of 16 bytes
  negotiator.submitted(0, {allreduce("a"), allreduce("b"), allreduce("c")}, kStart);
  const auto first = negotiator.take(1);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_THAT(names(first[0]), ElementsAre("a", "b"));
  const auto second = negotiator.take(1);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_THAT(names(second[0]), ElementsAre("c"));
}

TEST(Negotiator, MismatchNamesRanksAndValuesAndFreesTheName) {
  TestNegotiator negotiator(3, kThreshold);
  negotiator.submitted(0, {allreduce("a", {2, 3})}, kStart);
  negotiator.submitted(1, {allreduce("a", {2, 3})}, kStart);
  negotiator.submitted(2, {allreduce("a", {3, 2})}, kStart);  // the same count
  const auto decisions = negotiator.take(0);                  // rejections do not wait for batches
  ASSERT_EQ(decisions.size(), 1U);
  const Rejection& mismatch = rejection(decisions[0]);
  EXPECT_EQ(mismatch.code, Errc::mismatch);
  EXPECT_THAT(mismatch.message, HasSubstr("[2,3] on ranks 0-1"));
  EXPECT_THAT(mismatch.message, HasSubstr("[3,2] on rank 2"));
  EXPECT_THAT(mismatch.message, HasSubstr("'a'"));

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
      {"conversion", [](Request& r) { r.f32_memory = true; }},
      {"group",
       [](Request& r) {
         r.group = "g";
         r.group_size = 1;
       }},
  };
  for (const auto& [field, change] : changes) {
    TestNegotiator negotiator(2, kThreshold);
    Request other = allreduce("a");
    change(other);
    negotiator.submitted(0, {allreduce("a")}, kStart);
    negotiator.submitted(1, {other}, kStart);
    const auto decisions = negotiator.take(1);
    ASSERT_EQ(decisions.size(), 1U) << field;
    ASSERT_TRUE(std::holds_alternative<Decision>(decisions[0])) << field;
    EXPECT_THAT(rejection(decisions[0]).message, HasSubstr(field));
  }
}

TEST(Negotiator, AllgatherRanksContributeTheirOwnRows) {
  TestNegotiator negotiator(3, kThreshold);
  Request gather = allreduce("g", {2, 5});
  gather.kind = OpKind::allgather;
  negotiator.submitted(2, {gather}, kStart);
  gather.shape = {0, 5};
  negotiator.submitted(0, {gather}, kStart);
  gather.shape = {7, 5};
  negotiator.submitted(1, {gather}, kStart);
  const auto decisions = negotiator.take(1);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_THAT(std::get<FusedTensors>(decisions[0]).front().rows,
              ElementsAre(ElementsAre(0), ElementsAre(7), ElementsAre(2)));

  gather.shape = {1, 6};  // another row length is a mismatch
  negotiator.submitted(0, {gather}, kStart);
  gather.shape = {1, 5};
  negotiator.submitted(1, {gather}, kStart);
  negotiator.submitted(2, {gather}, kStart);
  const auto mismatch = negotiator.take(1);
  EXPECT_THAT(rejection(mismatch.at(0)).message, HasSubstr("[*,6] on rank 0"));
}

TEST(Negotiator, ARankThatSubmitsANameTwiceIsBroken) {
  TestNegotiator negotiator(2, kThreshold);
  negotiator.submitted(1, {allreduce("a")}, kStart);
  EXPECT_THROW(negotiator.submitted(1, {allreduce("a")}, kStart), Error);
}

TEST(Negotiator, DepartureRejectsWhatIsPendingAndWhatComesLater) {
  TestNegotiator negotiator(2, kThreshold);
  negotiator.submitted(0, {allreduce("a")}, kStart);
  negotiator.departed(1);
  const auto pending = negotiator.take(1);
  ASSERT_EQ(pending.size(), 1U);
  EXPECT_EQ(rejection(pending[0]).code, Errc::shut_down);
  EXPECT_THAT(rejection(pending[0]).message, HasSubstr("rank 1"));
  negotiator.submitted(0, {allreduce("b")}, kStart);
  EXPECT_THAT(names(negotiator.take(1).at(0)), ElementsAre("b"));
  EXPECT_FALSE(negotiator.finished());
  negotiator.departed(0);
  EXPECT_TRUE(negotiator.finished());
}

TEST(Negotiator, WhatWasReadyBeforeADepartureStillRuns) {
  TestNegotiator negotiator(2, kThreshold);
  negotiator.submitted(0, {allreduce("a")}, kStart);
  negotiator.submitted(1, {allreduce("a")}, kStart);
  negotiator.departed(0);
  negotiator.departed(1);
  EXPECT_FALSE(negotiator.finished());
  EXPECT_THAT(names(negotiator.take(1).at(0)), ElementsAre("a"));
  EXPECT_TRUE(negotiator.finished());
}

TEST(Negotiator, StallsNameWhoIsMissingOldestFirst) {
  TestNegotiator negotiator(3, kThreshold);
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

Request grouped(const std::string& name, const std::string& group, int size) {
  Request request = allreduce(name);
  request.group = group;
  request.group_size = size;
  return request;
}

TEST(Negotiator, AGroupIsReadyWhenAllItsMembersAreReadyOnAllRanks) {
  TestNegotiator negotiator(2, 0);
  negotiator.submitted(0, {grouped("a", "g", 2), grouped("b", "g", 2)});
  negotiator.submitted(1, {grouped("b", "g", 2)});
  EXPECT_TRUE(negotiator.take(10).empty());
  negotiator.submitted(1, {grouped("a", "g", 2)});
  const auto decisions = negotiator.take(10);
  ASSERT_EQ(decisions.size(), 2U);
  EXPECT_THAT(names(decisions[0]), ElementsAre("b"));
  EXPECT_THAT(names(decisions[1]), ElementsAre("a"));
}

TEST(Negotiator, AFailedMemberFailsItsGroupAndLeavesNothingBehind) {
  for (const bool failure_first : {true, false}) {
    TestNegotiator negotiator(2, kThreshold);
    Request odd = grouped("bad", "g", 3);
    odd.shape = {9};
    const std::vector<Request> fine{grouped("x", "g", 3), grouped("y", "g", 3)};
    negotiator.submitted(0, {grouped("bad", "g", 3)});
    negotiator.submitted(0, fine);
    if (failure_first) negotiator.submitted(1, {odd});
    negotiator.submitted(1, fine);
    if (!failure_first) negotiator.submitted(1, {odd});
    std::vector<std::string> rejected;
    for (const Agreement& agreement : negotiator.take(10)) {
      EXPECT_EQ(rejection(agreement).code, Errc::mismatch);
      EXPECT_THAT(rejection(agreement).message, HasSubstr("'bad'"));
      rejected.push_back(rejection(agreement).name);
    }
    EXPECT_THAT(rejected, UnorderedElementsAre("bad", "x", "y"));
    EXPECT_TRUE(negotiator.pending().empty());

    for (int rank = 0; rank < 2; ++rank) {
      negotiator.submitted(rank, fine);
      negotiator.submitted(rank, {grouped("bad", "g", 3)});
    }
    EXPECT_THAT(names(negotiator.take(10).at(0)), ElementsAre("x", "y", "bad"));
  }
}

TEST(Negotiator, RanksThatPutANameIntoDifferentGroupsGetOneErrorPerName) {
  TestNegotiator negotiator(2, kThreshold);
  negotiator.submitted(0, {grouped("a", "g", 1)});
  negotiator.submitted(1, {grouped("a", "h", 1)});
  const auto decisions = negotiator.take(10);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_THAT(rejection(decisions[0]).message, HasSubstr("'g' of 1 on rank 0"));
}

Request join() {
  Request request;
  request.name = kJoinName;
  request.kind = OpKind::join;
  return request;
}

TEST(Negotiator, AJoinStallsWhenTheOtherRanksSubmitNothing) {
  TestNegotiator negotiator(3, kThreshold);
  negotiator.submitted(2, {join()}, kStart);
  negotiator.submitted(0, {allreduce("a")}, kStart + seconds(20));
  negotiator.submitted(1, {allreduce("a")}, kStart + seconds(20));
  EXPECT_TRUE(negotiator.stalls(kStart + seconds(29), seconds(10)).empty());
  const auto stalls = negotiator.stalls(kStart + seconds(30), seconds(10));
  ASSERT_EQ(stalls.size(), 1U);
  EXPECT_EQ(stalls[0].kind, OpKind::join);
  EXPECT_THAT(stalls[0].submitted, ElementsAre(2));
  EXPECT_THAT(stalls[0].missing, ElementsAre(0, 1));
  EXPECT_EQ(stalls[0].age, seconds(10));
}

/// Checks that all decisions are mismatches. Returns the names, with the ranks if a rejection is
/// for some ranks only.
std::vector<std::string> mismatches(TestNegotiator& negotiator) {
  std::vector<std::string> rejected;
  for (const Agreement& agreement : negotiator.take(10)) {
    EXPECT_EQ(rejection(agreement).code, Errc::mismatch);
    EXPECT_THAT(rejection(agreement).message,
                AllOf(ContainsRegex("on ranks? 0"), HasSubstr("on rank 1")));
    std::string& name = rejected.emplace_back(rejection(agreement).name);
    const auto* partial = std::get_if<PartialRejection>(&agreement);
    if (partial) name += fmt::format(" on {}", fmt::join(partial->ranks, ","));
  }
  return rejected;
}

struct DifferentGroups {
  std::vector<std::string> of_rank0, of_rank1, rejected;
};
const std::vector<DifferentGroups> kDifferentGroups{
    {{"a", "b"}, {"a", "b", "c"}, {"a", "b", "c on 1"}},  // more members
    {{"a", "b"}, {"a", "c"}, {"a", "b on 0", "c on 1"}},  // as many others
    {{"a"}, {"c", "d"}, {"a on 0", "c on 1", "d on 1"}},  // nothing in common
};

std::vector<Request> group_of(const std::vector<std::string>& members) {
  std::vector<Request> requests;
  for (const std::string& name : members) {
    requests.push_back(grouped(name, "g", static_cast<int>(members.size())));
  }
  return requests;
}

TEST(Negotiator, GroupsThatDifferFailOnEveryRankAsSoonAsAllHaveSubmittedThem) {
  for (const auto& [of_rank0, of_rank1, rejected] : kDifferentGroups) {
    for (const int last : {0, 1}) {
      TestNegotiator negotiator(2, kThreshold);
      negotiator.submitted(1 - last, group_of(last == 1 ? of_rank0 : of_rank1));
      EXPECT_TRUE(negotiator.take(10).empty());
      negotiator.submitted(last, group_of(last == 1 ? of_rank1 : of_rank0));
      EXPECT_THAT(mismatches(negotiator), UnorderedElementsAreArray(rejected));
      EXPECT_TRUE(negotiator.pending().empty());

      for (const auto& members : {of_rank1, of_rank0}) {
        for (int rank = 0; rank < 2; ++rank) negotiator.submitted(rank, group_of(members));
        EXPECT_THAT(names(negotiator.take(10).at(0)), ElementsAreArray(members)) << "works again";
      }
    }
  }
}

TEST(Negotiator, GroupsThatDifferWaitForEveryRank) {
  TestNegotiator negotiator(3, kThreshold);
  negotiator.submitted(0, group_of({"a", "b"}));
  negotiator.submitted(1, group_of({"a", "b", "c"}));
  EXPECT_TRUE(negotiator.take(10).empty()) << "rank 2 would take what comes next for this";
  negotiator.submitted(2, group_of({"a", "b"}));
  EXPECT_THAT(mismatches(negotiator), UnorderedElementsAre("a", "b", "c on 1"));
  EXPECT_TRUE(negotiator.pending().empty());
}

TEST(Negotiator, AJoinShowsThatGroupsDiffer) {
  TestNegotiator negotiator(3, kThreshold);
  negotiator.submitted(0, group_of({"a", "b"}));
  negotiator.submitted(1, group_of({"a", "c"}));
  negotiator.submitted(2, {join()});
  EXPECT_THAT(mismatches(negotiator), UnorderedElementsAre("a", "b on 0", "c on 1"));
  EXPECT_TRUE(negotiator.pending().empty());
}

TEST(Negotiator, AJoinThatShowsAMismatchFailsTheWholeGroup) {
  TestNegotiator negotiator(3, kThreshold);
  negotiator.submitted(0, group_of({"a", "b"}));
  std::vector<Request> other = group_of({"a", "b"});
  other.front().shape = {9};
  negotiator.submitted(1, other);
  negotiator.submitted(2, {join()});
  EXPECT_THAT(mismatches(negotiator), UnorderedElementsAre("a", "b on 0,1"));
  EXPECT_TRUE(negotiator.pending().empty());
}

TEST(Negotiator, ARankThatChangesTheSizeOfItsGroupIsBroken) {
  TestNegotiator negotiator(2, kThreshold);
  negotiator.submitted(1, {grouped("a", "g", 3)});
  EXPECT_THROW(negotiator.submitted(1, {grouped("b", "g", 2)}), Error);
}

TEST(Negotiator, OthersGoOnWithoutARankThatHasJoined) {
  TestNegotiator negotiator(3, kThreshold);
  negotiator.submitted(0, {allreduce("a")});
  negotiator.submitted(1, {allreduce("a")});
  EXPECT_TRUE(negotiator.take(10).empty());
  negotiator.submitted(2, {join()});
  const auto decisions = negotiator.take(10);
  ASSERT_EQ(decisions.size(), 1U);
  const ReadyTensor& tensor = std::get<FusedTensors>(decisions[0]).front();
  EXPECT_TRUE(tensor.segments.empty()) << "rank 2 must be told what it takes part in";
  EXPECT_EQ(tensor.contributors, 0) << "averages are over all ranks";
  EXPECT_FALSE(negotiator.everybody_works());

  Request gather = allreduce("g");
  gather.kind = OpKind::allgather;
  negotiator.submitted(0, {gather});
  negotiator.submitted(1, {gather});
  const auto refused = negotiator.take(10);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(rejection(refused[0]).code, Errc::unsupported);
  EXPECT_THAT(rejection(refused[0]).message, HasSubstr("rank 2 has joined"));

  negotiator.submitted(0, {join()});
  EXPECT_TRUE(negotiator.take(10).empty());
  negotiator.submitted(1, {join()});
  const auto over = negotiator.take(10);
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(std::get<AllJoined>(std::get<Decision>(over[0])).last, 1);
  EXPECT_TRUE(negotiator.everybody_works());
  negotiator.submitted(0, {allreduce("a")});
  EXPECT_TRUE(negotiator.take(10).empty()) << "after the join everybody is waited for";
}

TEST(Negotiator, ARankThatJoinedAfterItSubmittedContributes) {
  TestNegotiator negotiator(2, kThreshold);
  Request last = join();
  last.over_contributors = true;
  negotiator.submitted(0, {allreduce("mine")});
  negotiator.submitted(0, {last});
  negotiator.submitted(1, {allreduce("mine"), allreduce("yours")});
  const auto decisions = negotiator.take(10);
  ASSERT_EQ(decisions.size(), 2U);
  EXPECT_EQ(std::get<FusedTensors>(decisions[0]).front().contributors, 0);
  EXPECT_EQ(std::get<FusedTensors>(decisions[1]).front().contributors, 1);
}

Request set_of(std::vector<std::int64_t> ranks, OpKind kind = OpKind::add_process_set) {
  Request request;
  request.name = "set";
  request.kind = kind;
  request.shape = std::move(ranks);
  return request;
}

TEST(Negotiator, AProcessSetWaitsForItsMembersOnly) {
  TestNegotiator negotiator(3, kThreshold);
  for (int rank = 0; rank < 3; ++rank) negotiator.submitted(rank, {set_of({0, 2})});
  const auto added = negotiator.take(10);
  ASSERT_EQ(added.size(), 1U);
  const auto& set = std::get<SetAdded>(std::get<Decision>(added[0]));
  EXPECT_THAT(set.ranks, ElementsAre(0, 2));
  Request request = allreduce("a");
  request.process_set = set.id;
  negotiator.submitted(0, {request});
  negotiator.submitted(1, {allreduce("a")});  // the same name in the set of all
  EXPECT_TRUE(negotiator.take(10).empty());
  EXPECT_THROW(negotiator.submitted(1, {request}), Error) << "not a member";
  negotiator.submitted(2, {request});
  EXPECT_THAT(names(negotiator.take(10).at(0)), ElementsAre("a"));
}

TEST(Negotiator, RemovingASetRejectsWhatIsPendingAndComesAfterWhatIsReady) {
  TestNegotiator negotiator(2, kThreshold);
  for (int rank = 0; rank < 2; ++rank) negotiator.submitted(rank, {set_of({0, 1})});
  const auto id = std::get<SetAdded>(std::get<Decision>(negotiator.take(1).at(0))).id;
  Request ready = allreduce("ready");
  Request pending = allreduce("pending");
  ready.process_set = pending.process_set = id;
  negotiator.submitted(0, {ready, pending});
  negotiator.submitted(1, {ready});
  for (int rank = 0; rank < 2; ++rank) {
    negotiator.submitted(rank, {set_of({id}, OpKind::remove_process_set)});
  }
  const auto first = negotiator.take(0);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(rejection(first[0]).name, "pending");
  EXPECT_EQ(rejection(first[0]).process_set, id);
  const auto second = negotiator.take(1);
  ASSERT_EQ(second.size(), 2U);
  EXPECT_THAT(names(second[0]), ElementsAre("ready"));
  EXPECT_EQ(std::get<SetRemoved>(std::get<Decision>(second[1])).id, id);
}

TEST(Negotiator, AlltoallKeepsEveryRanksSplits) {
  TestNegotiator negotiator(2, kThreshold);
  Request request = allreduce("a", {3});
  request.kind = OpKind::alltoall;
  request.splits = {1, 2};
  negotiator.submitted(1, {request});
  request.shape = {5};
  request.splits = {5, 0};
  negotiator.submitted(0, {request});
  EXPECT_THAT(std::get<FusedTensors>(negotiator.take(1).at(0)).front().rows,
              ElementsAre(ElementsAre(5, 0), ElementsAre(1, 2)));
  request.splits = {5};
  EXPECT_THROW(negotiator.submitted(0, {request}), Error);
}

}  // namespace
}  // namespace hvd
