// Tests that a rank refuses decisions of rank 0 that do not fit its own operations. So a rank 0
// that errs or lies makes no rank read or write memory that it does not have.
#include "engine/decision_checks.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::detail {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<int> kMembers{1, 3, 4};
constexpr int kRank = 3;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Request request(const std::string& name, OpKind kind) {
  Request made;
  made.name = name;
  made.kind = kind;
  made.dtype = DType::f32;
  made.shape = {6, 2};
  made.process_set = 2;
  if (kind == OpKind::alltoall) made.splits = {1, 2, 3};
  return made;
}

LocalBatch batch(const std::vector<Request>& requests) {
  LocalBatch made;
  made.process_set = 2;
  for (const Request& each : requests) {
    auto& tensor = made.tensors.emplace_back(std::make_shared<PendingTensor>());
    tensor->submission.request = each;
    if (each.kind == OpKind::allgather) made.rows.push_back({0, 6, 9});
    if (each.kind == OpKind::alltoall) made.rows.push_back({7, 2, 0});
  }
  return made;
}

std::string problem_with(const LocalBatch& of) { return problem_with(of, kMembers, kRank); }

TEST(DecisionChecks, WhatThisRankHasSubmittedIsGood) {
  for (int kind = 0; kind <= static_cast<int>(OpKind::barrier); ++kind) {
    EXPECT_THAT(problem_with(batch({request("a", static_cast<OpKind>(kind))})), IsEmpty()) << kind;
  }
  EXPECT_THAT(
      problem_with(batch({request("a", OpKind::allgather), request("b", OpKind::allgather)})),
      IsEmpty());
}

TEST(DecisionChecks, OtherRowsThanThoseOfThisRankAreRefused) {
  using Rows = std::vector<std::vector<std::int64_t>>;
  for (const Rows& rows : {Rows{{0, 7, 9}}, Rows{{0, 6}}, Rows{{0, 6, 9, 1}}, Rows{{-1, 6, 9}},
                           Rows{{kMost, 6, 9}}, Rows{{kMost / 8, 6, 9}}, Rows{{}}, Rows{}}) {
    LocalBatch of = batch({request("a", OpKind::allgather)});
    of.rows = rows;
    EXPECT_THAT(problem_with(of), HasSubstr("the numbers of rows of 'a'"));
  }
  LocalBatch alltoall = batch({request("a", OpKind::alltoall)});
  alltoall.rows = {{7, 3, 0}};
  EXPECT_THAT(problem_with(alltoall), HasSubstr("the numbers of rows"));
  LocalBatch sum = batch({request("a", OpKind::allreduce)});
  sum.rows = {{0, 6, 9}};
  EXPECT_THAT(problem_with(sum), HasSubstr("the numbers of rows"));
}

TEST(DecisionChecks, TensorsThatAreNoSingleCollectiveAreRefused) {
  const Request first = request("a", OpKind::allreduce);
  Request other = request("b", OpKind::broadcast);
  EXPECT_THAT(problem_with(batch({first, other})), HasSubstr("'a' and 'b' cannot be one"));
  other = request("b", OpKind::allreduce);
  other.dtype = DType::f64;
  EXPECT_THAT(problem_with(batch({first, other})), HasSubstr("'a' and 'b' cannot be one"));
  for (const OpKind kind : {OpKind::join, OpKind::add_process_set, OpKind::remove_process_set}) {
    EXPECT_THAT(problem_with(batch({request("a", kind)})), HasSubstr("'a' is no collective"));
  }
}

TEST(DecisionChecks, OtherRanksAndContributorsAreRefused) {
  LocalBatch of = batch({request("a", OpKind::allreduce)});
  EXPECT_THAT(problem_with(of, kMembers, 2), HasSubstr("not in the process set of 'a'"));
  for (const int contributors : {-1, 4}) {
    of.contributors = contributors;
    EXPECT_THAT(problem_with(of), HasSubstr("contributors"));
  }
}

TEST(DecisionChecks, ARankThatHasJoinedHasNothingToGive) {
  for (const OpKind kind : {OpKind::allreduce, OpKind::barrier, OpKind::broadcast,
                            OpKind::reducescatter, OpKind::allgather, OpKind::alltoall}) {
    LocalBatch of = batch({request("a", kind)});
    of.tensors.front()->stand_in = true;
    const bool is_good = kind == OpKind::allreduce || kind == OpKind::barrier;
    EXPECT_EQ(problem_with(of), is_good ? "" : "'a' needs every rank, but this rank has joined");
  }
}

std::vector<int> members_of(std::int32_t process_set) {
  if (process_set == 0) return {0, 1, 2, 3, 4};
  return process_set == 2 ? kMembers : std::vector<int>();
}

std::string problem_with(const PlannedBatch& of) {
  return problem_with(FrozenSchedule{{of}}, members_of);
}

TEST(DecisionChecks, APlanIsCheckedBeforeItsFirstTurn) {
  const PlannedBatch good{2, kMembers, {request("a", OpKind::allgather)}, {{0, 6, 9}}};
  EXPECT_EQ(problem_with(good), "");
  for (const auto& rows : {std::vector<std::vector<std::int64_t>>{{0, 6}}, {{kMost, 6, 9}}, {}}) {
    PlannedBatch bad = good;
    bad.rows = rows;
    EXPECT_THAT(problem_with(bad), HasSubstr("the numbers of rows"));
  }
  for (const auto& members : {std::vector<int>{1, 3, 5}, {1, 3}, {}}) {
    PlannedBatch bad = good;
    bad.members = members;
    EXPECT_THAT(problem_with(bad), HasSubstr("'a' has other members than process set 2"));
  }
  PlannedBatch bad = good;
  bad.process_set = 3;
  EXPECT_THAT(problem_with(bad), HasSubstr("other members than process set 3"));
  for (const OpKind kind : {OpKind::alltoall, OpKind::join}) {
    EXPECT_THAT(problem_with({2, kMembers, {request("a", kind)}, {{7, 2, 0}}}),
                HasSubstr("'a' cannot be in a frozen schedule"));
  }
  const PlannedBatch mixed{
      2, kMembers, {request("a", OpKind::allreduce), request("b", OpKind::broadcast)}, {}};
  EXPECT_THAT(problem_with(mixed), HasSubstr("'a' and 'b' cannot be one"));
}

}  // namespace
}  // namespace hvd::detail
