// What rank 0 decides is refused when this rank cannot do it: a rank 0 that errs or lies makes no
// rank read or write memory that it does not have.
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
constexpr int kSize = 5;
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
    EXPECT_THAT(problem_with(of), HasSubstr("'a' has the rows of another operation"));
  }
  LocalBatch alltoall = batch({request("a", OpKind::alltoall)});
  alltoall.rows = {{7, 3, 0}};
  EXPECT_THAT(problem_with(alltoall), HasSubstr("the rows of another"));
  LocalBatch sum = batch({request("a", OpKind::allreduce)});
  sum.rows = {{0, 6, 9}};
  EXPECT_THAT(problem_with(sum), HasSubstr("the rows of another"));
}

TEST(DecisionChecks, TensorsThatAreNoSingleCollectiveAreRefused) {
  const Request first = request("a", OpKind::allreduce);
  Request other = request("b", OpKind::broadcast);
  EXPECT_THAT(problem_with(batch({first, other})), HasSubstr("'a' and 'b' are no single"));
  other = request("b", OpKind::allreduce);
  other.dtype = DType::f64;
  EXPECT_THAT(problem_with(batch({first, other})), HasSubstr("'a' and 'b' are no single"));
  for (const OpKind kind : {OpKind::join, OpKind::add_process_set, OpKind::remove_process_set}) {
    EXPECT_THAT(problem_with(batch({request("a", kind)})), HasSubstr("'a' is no collective"));
  }
}

TEST(DecisionChecks, OtherRanksAndContributorsAreRefused) {
  LocalBatch of = batch({request("a", OpKind::allreduce)});
  EXPECT_THAT(problem_with(of, kMembers, 2), HasSubstr("'a' is of other ranks"));
  for (const int contributors : {-1, 4}) {
    of.contributors = contributors;
    EXPECT_THAT(problem_with(of), HasSubstr("contributors"));
  }
  LocalBatch joined = batch({request("a", OpKind::allgather)});
  joined.tensors.front()->stand_in = true;  // a rank that has joined has nothing to give
  EXPECT_THAT(problem_with(joined), HasSubstr("the rows of another"));
}

TEST(DecisionChecks, APlanIsCheckedBeforeItsFirstTurn) {
  const auto plan_of = [](PlannedBatch of) { return FrozenSchedule{{std::move(of)}}; };
  const auto problem = [&](PlannedBatch of) { return problem_with(plan_of(std::move(of)), kSize); };
  const PlannedBatch good{2, kMembers, {request("a", OpKind::allgather)}, {{0, 6, 9}}};
  EXPECT_THAT(problem(good), IsEmpty());
  PlannedBatch bad = good;
  bad.members = {1, 3, kSize};
  EXPECT_THAT(problem(bad), HasSubstr("'a' is of rank 5"));
  bad = good;
  bad.rows = {{0, 6}};
  EXPECT_THAT(problem(bad), HasSubstr("the rows of another"));
  bad.rows = {};
  EXPECT_THAT(problem(bad), HasSubstr("the rows of another"));
  bad = good;
  bad.process_set = 3;
  EXPECT_THAT(problem(bad), HasSubstr("no single collective"));
  bad = {2, kMembers, {request("a", OpKind::alltoall)}, {{7, 2, 0}}};
  EXPECT_THAT(problem(bad), HasSubstr("no single collective"));
  bad = {2, kMembers, {request("a", OpKind::allreduce), request("b", OpKind::broadcast)}, {}};
  EXPECT_THAT(problem(bad), HasSubstr("no single collective"));
}

}  // namespace
}  // namespace hvd::detail
