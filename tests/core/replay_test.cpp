#include "policy/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test

Request request(const std::string& name, std::int32_t set = 0) {
  Request request;
  request.name = name;
  request.shape = {4};
  request.process_set = set;
  return request;
}

/// The plan is {a, b} on all ranks, then c on ranks 1 and 2 of set 5, then a again.
FrozenSchedule plan() {
  return {{PlannedBatch{0, {}, {request("a"), request("b")}, {}},
           PlannedBatch{5, {1, 2}, {request("c", 5)}, {}},
           PlannedBatch{0, {}, {request("a")}, {}}}};
}

TEST(Replay, BeginsInTheOrderOfThePlanWhateverTheOrderOfSubmission) {
  Replay replay(plan(), 3, 1);
  EXPECT_FALSE(replay.ready());
  EXPECT_TRUE(replay.submitted(request("c", 5)));
  EXPECT_TRUE(replay.submitted(request("b")));
  EXPECT_FALSE(replay.ready());
  EXPECT_TRUE(replay.held_back());
  EXPECT_EQ(replay.begun(), 0U);
  EXPECT_TRUE(replay.submitted(request("a")));
  ASSERT_TRUE(replay.ready());
  const Replay::Turn first = replay.begin();
  EXPECT_EQ(first.batch, &replay.plan().batches[0]);
  EXPECT_EQ(replay.begun(), first.sequence);
  ASSERT_TRUE(replay.ready());
  const Replay::Turn second = replay.begin();
  EXPECT_EQ(second.batch, &replay.plan().batches[1]);
  EXPECT_GT(second.sequence, first.sequence);
  EXPECT_FALSE(replay.ready());
  EXPECT_FALSE(replay.held_back()) << "nothing waits";
  EXPECT_TRUE(replay.submitted(request("a"))) << "its second place in the cycle";
  EXPECT_EQ(replay.begin().batch, &replay.plan().batches[2]);
  EXPECT_TRUE(replay.submitted(request("a"))) << "the next cycle";
  EXPECT_FALSE(replay.ready());
  EXPECT_TRUE(replay.submitted(request("b")));
  EXPECT_TRUE(replay.ready());
}

TEST(Replay, SequenceNumbersAndDigestsAreTheSameOnAllMembers) {
  Replay one(plan(), 3, 1);
  Replay two(plan(), 3, 2);
  Replay other(plan(), 3, 0);  // not in set 5
  for (int cycle = 0; cycle < 3; ++cycle) {
    for (Replay* replay : {&one, &two, &other}) {
      EXPECT_TRUE(replay->submitted(request("a")));
      EXPECT_TRUE(replay->submitted(request("b")));
    }
    const Replay::Turn expected = one.begin();
    for (Replay* replay : {&two, &other}) {
      const Replay::Turn turn = replay->begin();
      EXPECT_EQ(turn.sequence, expected.sequence);
      EXPECT_EQ(turn.digest, expected.digest);
    }
    EXPECT_TRUE(one.submitted(request("c", 5)));
    EXPECT_TRUE(two.submitted(request("c", 5)));
    EXPECT_FALSE(other.submitted(request("c", 5)));
    const Replay::Turn set = one.begin();
    EXPECT_EQ(set.sequence, two.begin().sequence);
    EXPECT_NE(set.digest, expected.digest);
    for (Replay* replay : {&one, &two, &other}) EXPECT_TRUE(replay->submitted(request("a")));
    const Replay::Turn last = one.begin();
    EXPECT_EQ(last.sequence, two.begin().sequence);
    EXPECT_EQ(last.sequence, other.begin().sequence);
    const SchedulePosition position = position_of(last.sequence, 3);
    EXPECT_EQ(position.epoch, 3U);
    EXPECT_EQ(position.cycle, static_cast<std::uint64_t>(cycle));
    EXPECT_EQ(position.batch, 2U);
    EXPECT_EQ(sequence_of(position, 3), last.sequence);
  }
}

TEST(Replay, WhatDiffersInAnythingHasNoPlace) {
  using Change = void (*)(Request&);
  const std::vector<Change> changes{
      [](Request& r) {
        r.shape = {2, 2};
      },
      [](Request& r) { r.dtype = DType::f64; },
      [](Request& r) { r.op = ReduceOp::max; },
      [](Request& r) { r.prescale = 2; },
      [](Request& r) { r.kind = OpKind::barrier; },
      [](Request& r) { r.process_set = 5; },
      [](Request& r) { r.group = "g"; },
      [](Request& r) { r.name = "z"; },
  };
  for (const Change change : changes) {
    Replay replay(plan(), 1, 0);
    Request other = request("a");
    change(other);
    EXPECT_FALSE(replay.submitted(other));
    EXPECT_TRUE(replay.submitted(request("a"))) << "it took no place";
  }
  Replay replay(plan(), 1, 0);
  Request device = request("a");
  device.device.index = 3;
  EXPECT_TRUE(replay.submitted(device)) << "each rank has its own device";
}

TEST(Replay, AnAllgathersRowsAreEachRanksOwn) {
  Request gather = request("g");
  gather.kind = OpKind::allgather;
  gather.shape = {7, 2};
  const FrozenSchedule gathers{{PlannedBatch{0, {}, {gather}, {{7, 0}}}}};
  Replay replay(gathers, 1, 1);
  EXPECT_FALSE(replay.submitted(gather));
  gather.shape = {0, 2};
  EXPECT_TRUE(replay.submitted(gather));
  EXPECT_TRUE(replay.ready());
}

}  // namespace
}  // namespace hvd
