#include "policy/fault_detector.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using std::chrono::milliseconds;
using testing::HasSubstr;

const Clock::time_point kStart{};
constexpr FaultDetector::Settings kSettings{milliseconds(100), milliseconds(2000),
                                            milliseconds(10'000), milliseconds(200)};

/// Ticks every 100 ms up to and including `to` and returns the first verdict.
std::optional<Verdict> tick_until(FaultDetector& detector, milliseconds from, milliseconds to) {
  for (milliseconds at = from; at <= to; at += milliseconds(100)) {
    if (auto verdict = detector.tick(kStart + at)) return verdict;
  }
  return std::nullopt;
}

/// Does the same while the host of `peer` acknowledges bytes.
std::optional<Verdict> tick_answered(FaultDetector& detector, int peer, milliseconds from,
                                     milliseconds to) {
  for (milliseconds at = from; at <= to; at += milliseconds(100)) {
    if (auto verdict = detector.tick(kStart + at)) return verdict;
    detector.host_answered(peer, kStart + at);
  }
  return std::nullopt;
}

TEST(FaultDetector, ASilentPeerWhoseHostAnswersIsFrozenAfterThePeerTimeoutAndNotBefore) {
  FaultDetector detector(kSettings, kStart);
  detector.watch(3, kStart);
  EXPECT_FALSE(tick_answered(detector, 3, milliseconds(100), milliseconds(1900)));
  const auto verdict = detector.tick(kStart + milliseconds(2000));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 3);
  EXPECT_EQ(verdict->code, Errc::peer_lost);
  EXPECT_EQ(verdict->cause, "silent for 2.0 s, though its host answers (HVD_PEER_TIMEOUT_MS)");
  EXPECT_FALSE(has_left(verdict->code, verdict->cause));
}

TEST(FaultDetector, ASilentHostIsLostAfterItsTimeoutAndNotBefore) {
  FaultDetector detector(kSettings, kStart);
  detector.watch(3, kStart);
  EXPECT_FALSE(tick_until(detector, milliseconds(100), milliseconds(9900)));
  const auto verdict = detector.tick(kStart + milliseconds(10'000));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 3);
  EXPECT_EQ(verdict->cause, "silent for 10.0 s, longer than HVD_HOST_TIMEOUT_S allows");
}

TEST(FaultDetector, AHeartbeatRestartsTheClock) {
  FaultDetector detector(kSettings, kStart);
  detector.watch(1, kStart);
  EXPECT_FALSE(tick_answered(detector, 1, milliseconds(100), milliseconds(1500)));
  detector.heard(1, kStart + milliseconds(1500));
  EXPECT_FALSE(tick_answered(detector, 1, milliseconds(1600), milliseconds(3400)));
  EXPECT_TRUE(detector.tick(kStart + milliseconds(3500)));
}

TEST(FaultDetector, AfterAnOutageThePeerHasAsLongAgainToBeHeard) {
  FaultDetector detector(kSettings, kStart);
  detector.watch(1, kStart);
  detector.host_answered(1, kStart);
  EXPECT_FALSE(tick_until(detector, milliseconds(100), milliseconds(3000)));
  // TCP's acknowledgements return after 3 s. If the peer lives, its own bytes arrive by 6 s.
  EXPECT_FALSE(tick_answered(detector, 1, milliseconds(3100), milliseconds(7900)));
  const auto verdict = tick_answered(detector, 1, milliseconds(8000), milliseconds(8300));
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->cause, HasSubstr("though its host answers"));
}

TEST(FaultDetector, AnswersThatComeAndGoDoNotPostponeTheVerdictForEver) {
  FaultDetector detector(kSettings, kStart);
  detector.watch(1, kStart);
  std::optional<Verdict> verdict;
  for (milliseconds at{100}; at <= milliseconds(10'000) && !verdict; at += milliseconds(100)) {
    verdict = detector.tick(kStart + at);
    if (at.count() % 1500 == 0) detector.host_answered(1, kStart + at);
  }
  EXPECT_TRUE(verdict);
}

TEST(FaultDetector, TimeInWhichTheTickItselfWasLateIsNotHeldAgainstPeers) {
  FaultDetector detector(kSettings, kStart);
  detector.watch(1, kStart);
  EXPECT_FALSE(detector.tick(kStart + milliseconds(100)));
  EXPECT_FALSE(detector.tick(kStart + milliseconds(10'000)));  // this process was stopped
  EXPECT_FALSE(tick_answered(detector, 1, milliseconds(10'100), milliseconds(11'700)));
  EXPECT_TRUE(tick_answered(detector, 1, milliseconds(11'800), milliseconds(12'000)));
}

TEST(FaultDetector, ALostStreamIsBelievedAtOnce) {
  FaultDetector detector(kSettings, kStart);
  detector.watch(2, kStart);
  detector.lost(2, "connection closed", kStart + milliseconds(50));
  const auto verdict = detector.tick(kStart + milliseconds(50));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 2);
  EXPECT_EQ(verdict->cause, "connection closed");
  EXPECT_TRUE(has_left(verdict->code, verdict->cause));
}

TEST(FaultDetector, AVictimIsNotBlamedWhenTheCulpritShowsWithinTheSettleTime) {
  FaultDetector detector(kSettings, kStart);
  detector.watch(1, kStart);
  detector.watch(2, kStart);
  // Rank 1 left the ring because rank 2 died, but its neighbour saw the reset of rank 1 first.
  detector.suspected(1, Errc::peer_lost, "connection reset", false, kStart);
  EXPECT_FALSE(detector.tick(kStart + milliseconds(100)));
  detector.lost(2, "connection closed", kStart + milliseconds(150));
  const auto verdict = detector.tick(kStart + milliseconds(150));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 2);
}

TEST(FaultDetector, WeakEvidenceStandsWhenNothingBetterComes) {
  FaultDetector detector(kSettings, kStart);
  detector.watch(1, kStart);
  detector.suspected(1, Errc::timeout, "no data for 30 s", false, kStart);
  detector.suspected(2, Errc::peer_lost, "later", false, kStart + milliseconds(10));
  EXPECT_FALSE(detector.tick(kStart + milliseconds(100)));
  EXPECT_FALSE(detector.tick(kStart + milliseconds(190)));
  const auto verdict = detector.tick(kStart + milliseconds(200));
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 1);
  EXPECT_EQ(verdict->code, Errc::timeout);
}

TEST(FaultDetector, ARankBelowARelayWaitsForTheRelaysFailure) {
  FaultDetector detector(kSettings, kStart);
  detector.watch(1, kStart);
  // Rank 4 has given its relay up, rank 1. This rank gives it up later.
  detector.suspected(4, Errc::peer_lost, "connection reset", true, kStart + milliseconds(1500));
  EXPECT_FALSE(detector.tick(kStart + milliseconds(1900)));
  detector.lost(1, "silent for 2.0 s", kStart + milliseconds(2000));
  EXPECT_EQ(detector.tick(kStart + milliseconds(2000))->rank, 1);
}

TEST(FaultDetector, ARankBelowARelayIsBlamedInTheEnd) {
  FaultDetector detector(kSettings, kStart);
  detector.suspected(4, Errc::peer_lost, "connection reset", true, kStart);
  Clock::time_point now = kStart;
  const Clock::time_point due = kStart + kSettings.settle + kSettings.peer_timeout;
  for (; now < due; now += milliseconds(100)) ASSERT_FALSE(detector.tick(now));
  EXPECT_EQ(detector.tick(now)->rank, 4);
}

TEST(FaultDetector, WeakEvidenceWaitsLongerWhereTheTickItselfIsLate) {
  FaultDetector detector(kSettings, kStart);
  EXPECT_FALSE(detector.tick(kStart));
  detector.suspected(4, Errc::peer_lost, "connection reset", true, kStart);
  // Every second tick is left out, so half of the time does not count.
  Clock::time_point now = kStart;
  const auto wait = kSettings.settle + kSettings.peer_timeout;
  for (; now < kStart + 2 * wait; now += milliseconds(200)) ASSERT_FALSE(detector.tick(now));
  EXPECT_EQ(detector.tick(now)->rank, 4);
}

TEST(FaultDetector, TheFirstOfTheStrongestStands) {
  FaultDetector detector(kSettings, kStart);
  for (int peer : {1, 2}) detector.watch(peer, kStart);
  detector.lost(2, "first", kStart);
  detector.lost(1, "consequence", kStart);
  detector.aborted(0, "consequence", kStart);
  EXPECT_EQ(detector.tick(kStart)->rank, 2);
}

TEST(FaultDetector, WhatAnotherSawCountsAsSeen) {
  FaultDetector detector(kSettings, kStart);
  detector.suspected(1, Errc::peer_lost, "connection reset", false, kStart);
  detector.lost(7, "silent for 2.0 s", kStart);
  EXPECT_EQ(detector.tick(kStart)->rank, 7);
}

TEST(FaultDetector, KnowsForAWhileThatItStoodStillItself) {
  FaultDetector detector(kSettings, kStart);
  EXPECT_FALSE(detector.stood_still(kStart + milliseconds(1500)));
  const auto before_the_tick = detector.stood_still(kStart + milliseconds(1700));
  ASSERT_TRUE(before_the_tick);
  EXPECT_EQ(*before_the_tick, milliseconds(1600));
  EXPECT_FALSE(detector.tick(kStart + milliseconds(1700)));
  EXPECT_TRUE(detector.stood_still(kStart + milliseconds(1800)));
  EXPECT_FALSE(tick_until(detector, milliseconds(1800), milliseconds(3700)));
  EXPECT_FALSE(detector.stood_still(kStart + milliseconds(3700)));
}

}  // namespace
}  // namespace hvd
