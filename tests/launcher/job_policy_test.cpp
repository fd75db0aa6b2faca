#include "supervise/job_policy.hpp"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_codes.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

constexpr int exited(int code) { return code << 8; }
constexpr int killed(int signal) { return signal; }

class JobPolicyTest : public testing::Test {
 protected:
  std::optional<End> exit_at(int ms, int rank, int status) {
    return policy.on_exit({.rank = rank, .status = status, .elapsed = milliseconds{ms}},
                          start + milliseconds{ms});
  }
  std::optional<End> time(int ms) { return policy.on_time(start + milliseconds{ms}); }

  Clock::time_point start{};
  JobPolicy policy{4, {.grace = milliseconds{5000}}};
};

TEST_F(JobPolicyTest, SuccessNeedsNoOrder) {
  for (int rank = 0; rank < 4; ++rank) EXPECT_FALSE(exit_at(rank, rank, exited(0)));
  EXPECT_EQ(policy.outcome().code, 0);
  EXPECT_FALSE(policy.outcome().culprit);
  EXPECT_FALSE(policy.wake_up());
}

TEST_F(JobPolicyTest, AFailureEndsTheOthersAfterSettling) {
  EXPECT_FALSE(exit_at(100, 2, exited(7)));
  ASSERT_TRUE(policy.wake_up());
  EXPECT_FALSE(time(299));
  const auto order = time(300);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->signal, SIGTERM);
  EXPECT_EQ(order->grace, JobPolicy::kFailureGrace);
  EXPECT_FALSE(exit_at(310, 0, killed(SIGTERM)));
  EXPECT_FALSE(exit_at(311, 3, exited(1)));
  const Outcome outcome = policy.outcome();
  EXPECT_EQ(outcome.code, 7);
  ASSERT_TRUE(outcome.culprit);
  EXPECT_EQ(outcome.culprit->rank, 2);
  EXPECT_THAT(outcome.ended, testing::ElementsAre(0, 3));
  EXPECT_TRUE(outcome.others.empty());
}

TEST_F(JobPolicyTest, TheKilledRankIsBlamedThoughItsVictimsWereNoticedFirst) {
  (void)exit_at(100, 0, exited(1));
  (void)exit_at(101, 1, killed(SIGABRT));  // an uncaught error
  (void)exit_at(180, 3, killed(SIGKILL));
  ASSERT_TRUE(time(300));
  EXPECT_EQ(policy.outcome().culprit->rank, 3);
  EXPECT_EQ(policy.outcome().code, 137);
  EXPECT_EQ(policy.outcome().others.size(), 2U);
}

TEST_F(JobPolicyTest, OfTwoKilledTheFirstIsBlamed) {
  (void)exit_at(100, 1, killed(SIGSEGV));
  (void)exit_at(101, 0, killed(SIGBUS));
  (void)time(300);
  EXPECT_EQ(policy.outcome().code, 128 + SIGSEGV);
}

TEST_F(JobPolicyTest, OfTwoErrorsTheFirstIsBlamedAlsoWhenItIsNoticedLast) {
  (void)exit_at(100, 1, exited(3));
  const auto noticed = start + milliseconds{180};
  EXPECT_FALSE(policy.on_exit({.rank = 2, .status = exited(7)}, noticed, start + milliseconds{90}));
  EXPECT_EQ(policy.wake_up(), start + milliseconds{100} + JobPolicy::kSettle);
  (void)time(300);
  EXPECT_EQ(policy.outcome().code, 7);
  EXPECT_EQ(policy.outcome().culprit->rank, 2);
  ASSERT_EQ(policy.outcome().others.size(), 1U);
  EXPECT_EQ(policy.outcome().others[0].rank, 1);
}

TEST_F(JobPolicyTest, AnErrorExitIsBlamedBeforeTheAbortsItCaused) {
  (void)exit_at(100, 2, exited(7));
  (void)exit_at(120, 0, killed(SIGABRT));
  (void)time(300);
  EXPECT_EQ(policy.outcome().code, 7);
}

TEST_F(JobPolicyTest, ADeserterIsBlamedForItsVictimsThoughTheyMayBeOverFirst) {
  const auto deserts_at = [&](int ms, int rank) {
    return policy.on_exit({.rank = rank, .elapsed = milliseconds{ms}, .without_shutdown = true},
                          start + milliseconds{ms});
  };
  EXPECT_FALSE(deserts_at(10, 3));
  EXPECT_FALSE(policy.wake_up()) << "that alone is no failure";
  (void)exit_at(100, 0, exited(3));
  EXPECT_FALSE(deserts_at(150, 2));
  ASSERT_TRUE(time(300));
  const Outcome outcome = policy.outcome();
  EXPECT_EQ(outcome.code, kExitInternal);
  EXPECT_EQ(outcome.culprit->rank, 3);
  ASSERT_EQ(outcome.others.size(), 2U);
  EXPECT_EQ(outcome.others[0].rank, 0);
}

TEST_F(JobPolicyTest, AKilledRankIsBlamedBeforeADeserter) {
  (void)policy.on_exit({.rank = 1, .without_shutdown = true}, start);
  (void)exit_at(100, 0, killed(SIGKILL));
  (void)time(300);
  EXPECT_EQ(policy.outcome().culprit->rank, 0);
  EXPECT_EQ(policy.outcome().code, 137);
}

TEST_F(JobPolicyTest, ADeserterWhomNobodyMissesIsNoFailure) {
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_FALSE(policy.on_exit({.rank = rank, .without_shutdown = rank == 1}, start));
  }
  EXPECT_EQ(policy.outcome().code, 0);
  EXPECT_FALSE(policy.outcome().culprit);
}

TEST_F(JobPolicyTest, AWrappersCodeTellsOfASignal) {
  (void)exit_at(100, 0, exited(1));
  (void)exit_at(101, 1, exited(128 + SIGKILL));
  (void)time(300);
  EXPECT_EQ(policy.outcome().culprit->rank, 1);
  EXPECT_EQ(policy.outcome().code, 137);
}

TEST_F(JobPolicyTest, ADeathAfterSettlingIsNoCause) {
  (void)exit_at(100, 0, exited(3));
  (void)time(300);
  (void)exit_at(301, 1, killed(SIGKILL));
  EXPECT_EQ(policy.outcome().code, 3);
}

TEST_F(JobPolicyTest, NothingIsWaitedForWhenAllAreOver) {
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(exit_at(1, rank, exited(0)));
  EXPECT_TRUE(exit_at(2, 3, exited(9)));
  EXPECT_EQ(policy.outcome().code, 9);
  EXPECT_TRUE(policy.ending());
}

TEST_F(JobPolicyTest, AUsersSignalIsPassedOnWithGraceThenAtOnce) {
  const auto first = policy.on_signal(SIGINT);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->signal, SIGINT);
  EXPECT_EQ(first->grace, milliseconds{5000});
  (void)exit_at(10, 0, exited(0));
  const auto second = policy.on_signal(SIGINT);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->signal, SIGKILL);
  EXPECT_EQ(second->grace, milliseconds{0});
  EXPECT_EQ(policy.outcome().code, 130);
  EXPECT_FALSE(policy.outcome().culprit);
}

TEST_F(JobPolicyTest, AFailureStaysTheCauseWhenASignalFollows) {
  (void)exit_at(100, 1, exited(5));
  EXPECT_TRUE(policy.on_signal(SIGTERM));
  EXPECT_EQ(policy.outcome().code, 5);
}

TEST_F(JobPolicyTest, TroubleHasItsOwnCode) {
  const auto order = policy.on_trouble(kExitDeadline, "late");
  ASSERT_TRUE(order);
  EXPECT_EQ(order->signal, SIGTERM);
  EXPECT_FALSE(policy.on_trouble(1, "more"));
  (void)exit_at(10, 0, killed(SIGTERM));
  EXPECT_EQ(policy.outcome().code, kExitDeadline);
  EXPECT_EQ(policy.outcome().trouble, "late");
}

TEST_F(JobPolicyTest, ALostHostIsBlamedBeforeRanksThatOnlyNoticed) {
  (void)exit_at(10, 0, exited(3));
  ASSERT_TRUE(policy.on_loss(kExitInternal, "the agent on b died"));
  const Outcome outcome = policy.outcome();
  EXPECT_EQ(outcome.code, kExitInternal);
  EXPECT_FALSE(outcome.culprit);
  EXPECT_EQ(outcome.trouble, "the agent on b died");
  ASSERT_EQ(outcome.others.size(), 1U);
  EXPECT_EQ(outcome.others[0].rank, 0);
  EXPECT_FALSE(policy.wake_up());
}

TEST_F(JobPolicyTest, AKilledRankIsBlamedBeforeTheHostThatIsLostAfterIt) {
  (void)exit_at(10, 2, killed(SIGSEGV));
  ASSERT_TRUE(policy.on_loss(kExitInternal, "the agent on b died"));
  ASSERT_TRUE(policy.outcome().culprit);
  EXPECT_EQ(policy.outcome().code, 128 + SIGSEGV);
}

TEST(JobPolicyGraceTest, AShorterGraceHoldsAfterAFailureToo) {
  JobPolicy policy(2, {.grace = milliseconds{100}});
  (void)policy.on_exit({.rank = 0, .status = exited(1)}, Clock::time_point{});
  const auto order = policy.on_time(Clock::time_point{} + JobPolicy::kSettle);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->grace, milliseconds{100});
}

/// Ranks whose library blames another rank for the error with which they end.
class JobPolicyTestimonyTest : public JobPolicyTest {
 protected:
  static constexpr int kLeaving = int{JobPolicy::kLeaving.count()};

  /// `blamed` has left the job unless it is `silent`.
  std::optional<End> victim_at(int ms, int rank, int blamed, int status = killed(SIGABRT),
                               bool silent = false) {
    return policy.on_exit({.rank = rank,
                           .status = status,
                           .elapsed = milliseconds{ms},
                           .blames = blamed,
                           .blamed_left = !silent},
                          start + milliseconds{ms});
  }
};

TEST_F(JobPolicyTestimonyTest, ARankThatHasLeftIsAwaitedBeyondTheSettleTimeAndBlamed) {
  EXPECT_FALSE(victim_at(100, 0, 1));
  EXPECT_EQ(policy.wake_up(), start + milliseconds{100} + JobPolicy::kLeaving);
  EXPECT_FALSE(time(100 + kLeaving - 1));
  ASSERT_TRUE(exit_at(900, 1, exited(3))) << "nothing more is awaited";
  const Outcome outcome = policy.outcome();
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.culprit->rank, 1);
  ASSERT_EQ(outcome.others.size(), 1U);
  EXPECT_EQ(outcome.others[0].rank, 0);
}

TEST_F(JobPolicyTestimonyTest, ARankThatEndsBeforeTheSettleTimeIsBlamedAfterIt) {
  EXPECT_FALSE(victim_at(100, 0, 1));
  EXPECT_FALSE(exit_at(150, 1, exited(3)));
  EXPECT_EQ(policy.wake_up(), start + milliseconds{100} + JobPolicy::kSettle);
  ASSERT_TRUE(time(300));
  EXPECT_EQ(policy.outcome().code, 3);
}

TEST_F(JobPolicyTestimonyTest, ARankThatStaysForTooLongIsEndedAndItsVictimBlamed) {
  EXPECT_FALSE(victim_at(100, 0, 1));
  ASSERT_TRUE(time(100 + kLeaving));
  EXPECT_EQ(policy.outcome().culprit->rank, 0);
  EXPECT_EQ(policy.outcome().code, 128 + SIGABRT);
}

TEST_F(JobPolicyTestimonyTest, ASilentRankIsNotAwaitedButBlamedWhenItFails) {
  EXPECT_FALSE(victim_at(100, 0, 1, exited(3), true));
  EXPECT_EQ(policy.wake_up(), start + milliseconds{100} + JobPolicy::kSettle);
  EXPECT_FALSE(exit_at(150, 1, exited(7)));
  ASSERT_TRUE(time(300));
  EXPECT_EQ(policy.outcome().culprit->rank, 1);
  EXPECT_EQ(policy.outcome().unresponsive, -1);
}

TEST_F(JobPolicyTestimonyTest, ASilentRankThatStillRunsIsNamed) {
  EXPECT_FALSE(victim_at(100, 0, 2, exited(3), true));
  EXPECT_FALSE(victim_at(110, 1, 2, exited(3), true));
  ASSERT_TRUE(time(300));
  EXPECT_EQ(policy.outcome().culprit->rank, 0);
  EXPECT_EQ(policy.outcome().code, 3);
  EXPECT_EQ(policy.outcome().unresponsive, 2);
}

TEST_F(JobPolicyTestimonyTest, ARankThatDoesNotExistIsNotNamed) {
  EXPECT_FALSE(victim_at(100, 0, 4, exited(3), true));
  ASSERT_TRUE(time(300));
  EXPECT_EQ(policy.outcome().culprit->rank, 0);
  EXPECT_EQ(policy.outcome().unresponsive, -1);
}

TEST_F(JobPolicyTestimonyTest, AChainOfBlameLeadsToItsEnd) {
  EXPECT_FALSE(victim_at(100, 0, 1));
  EXPECT_FALSE(victim_at(400, 1, 2)) << "now rank 2 is awaited";
  ASSERT_TRUE(exit_at(500, 2, exited(7)));
  EXPECT_EQ(policy.outcome().culprit->rank, 2);
  EXPECT_EQ(policy.outcome().others.size(), 2U);
}

TEST_F(JobPolicyTestimonyTest, OfRanksThatBlameEachOtherTheFirstIsBlamed) {
  EXPECT_FALSE(victim_at(100, 2, 1));
  EXPECT_FALSE(victim_at(110, 1, 0));
  EXPECT_FALSE(victim_at(120, 0, 1));
  ASSERT_TRUE(time(300));
  EXPECT_EQ(policy.outcome().culprit->rank, 2);
}

TEST_F(JobPolicyTestimonyTest, ARankThatHasEndedWellIsNeitherAwaitedNorBlamed) {
  EXPECT_FALSE(exit_at(50, 1, exited(0)));
  EXPECT_FALSE(victim_at(100, 0, 1));
  EXPECT_EQ(policy.wake_up(), start + milliseconds{100} + JobPolicy::kSettle);
  ASSERT_TRUE(time(300));
  EXPECT_EQ(policy.outcome().culprit->rank, 0);
  EXPECT_EQ(policy.outcome().unresponsive, -1);
}

TEST_F(JobPolicyTestimonyTest, ARankThatIsKilledAfterItHasBlamedAnotherIsAVictim) {
  EXPECT_FALSE(victim_at(100, 0, 1, killed(SIGSEGV)));
  ASSERT_TRUE(exit_at(900, 1, exited(3)));
  EXPECT_EQ(policy.outcome().culprit->rank, 1);
}

TEST_F(JobPolicyTestimonyTest, AKilledRankThatBlamesNobodyEndsTheWait) {
  EXPECT_FALSE(victim_at(100, 0, 1));
  ASSERT_TRUE(exit_at(600, 2, killed(SIGKILL)));
  EXPECT_EQ(policy.outcome().culprit->rank, 2);
}

TEST(JobPolicyGraceTest, CausesOfSeveralMachinesHaveLongerToSettle) {
  JobPolicy policy(2, {.settle = JobPolicy::kSettleOverNetwork});
  const Clock::time_point start{};
  (void)policy.on_exit({.rank = 0, .status = exited(1)}, start);
  EXPECT_EQ(policy.wake_up(), start + JobPolicy::kSettleOverNetwork);
}

}  // namespace
}  // namespace hvd::launcher
