#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hvd/core/internal/membership.hpp>

namespace hvd::detail {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kKilled = 128 + SIGKILL;

/// A job without processes. The functions return what they cause, in words.
class MembershipTest : public testing::Test {
 protected:
  void make(Membership::Options options, const std::vector<int>& hosts) {
    membership_.emplace(options);
    list(hosts);
  }
  std::vector<std::string> list(const std::vector<int>& hosts) {
    return words(membership_->on_hosts(hosts, now_));
  }
  std::vector<std::string> waits(int worker, const Waits& waits = {}) {
    return words(membership_->on_waits(worker, waits, now_));
  }
  std::vector<std::string> exits(int worker, int code) {
    return words(membership_->on_exit(worker, code, now_));
  }
  std::vector<std::string> after(milliseconds time) {
    now_ += time;
    return words(membership_->on_time(now_));
  }
  /// Workers 0 and 1 on a, and 2 and 3 on b, are the ranks of generation 1.
  void form_four(Membership::Options options = {.min_np = 2, .max_np = 4}) {
    make(options, {2, 2});
    for (int worker = 0; worker < 3; ++worker) EXPECT_THAT(waits(worker), ElementsAre());
    EXPECT_THAT(waits(3), ElementsAre("form 1: 0 1 2 3"));
  }

  std::vector<std::string> loses(std::size_t host) {
    return words(membership_->on_host_lost(host, now_));
  }

  std::optional<Membership> membership_;
  Clock::time_point now_{};

 private:
  static std::string word(const Membership::Order& order) {
    if (const auto* start = std::get_if<Membership::Start>(&order)) {
      return "start " + std::to_string(start->worker) + " on " + std::to_string(start->host);
    }
    if (const auto* form = std::get_if<Membership::Form>(&order)) {
      std::string text = "form " + std::to_string(form->generation) + ":";
      for (const int worker : form->workers) text += " " + std::to_string(worker);
      return text;
    }
    if (const auto* tell = std::get_if<Membership::Tell>(&order)) {
      return (std::holds_alternative<Change>(tell->order) ? "change " : "leave ") +
             std::to_string(tell->worker);
    }
    if (const auto* kill = std::get_if<Membership::Kill>(&order)) {
      return "kill " + std::to_string(kill->worker);
    }
    const auto& finish = std::get<Membership::Finish>(order);
    return "finish " + std::to_string(finish.code) + (finish.why.empty() ? "" : ": ") + finish.why;
  }
  static std::vector<std::string> words(const Membership::Orders& orders) {
    std::vector<std::string> all;
    for (const Membership::Order& order : orders) all.push_back(word(order));
    return all;
  }
};

TEST_F(MembershipTest, NoMoreWorkersThanTheMostAreStarted) {
  membership_.emplace(Membership::Options{.min_np = 1, .max_np = 3});
  EXPECT_THAT(list({2, 2}), ElementsAre("start 0 on 0", "start 1 on 0", "start 2 on 1"));
  EXPECT_THAT(list({2, 2, 9}), ElementsAre());
}

TEST_F(MembershipTest, TheFirstGenerationWaitsForAllThatWereStarted) {
  make({.min_np = 1, .max_np = 2, .timeout = milliseconds{100}}, {2});
  EXPECT_THAT(waits(1), ElementsAre());
  EXPECT_THAT(after(milliseconds{99}), ElementsAre());
  EXPECT_THAT(after(milliseconds{1}), ElementsAre("form 1: 1"));
}

TEST_F(MembershipTest, TheOthersGoOnAfterALoss) {
  form_four();
  EXPECT_THAT(exits(0, kKilled), ElementsAre("change 1", "change 2", "change 3"));
  EXPECT_THAT(waits(1, {.generation = 1, .blames = 0, .blamed_left = true}), ElementsAre());
  EXPECT_THAT(waits(2, {.generation = 1}), ElementsAre());
  EXPECT_THAT(waits(3, {.generation = 1}), ElementsAre("form 2: 1 2 3"));
}

TEST_F(MembershipTest, AWaitOfAnEarlierGenerationHasCrossed) {
  form_four();
  EXPECT_THAT(waits(0, {.generation = 0}), ElementsAre());
}

TEST_F(MembershipTest, ARequestToLeaveCountsWhenTheAssignmentHasNotGoneOut) {
  form_four();
  (void)membership_->on_host_lost(0, now_);
  // The lost host was to serve the store, so hvdrun says this for the others.
  (void)waits(2, {.generation = 1, .start_failed = true});
  EXPECT_THAT(waits(2, {.generation = 0, .leaves = true}), ElementsAre("leave 2"));
}

TEST_F(MembershipTest, ASilentWorkerIsKilledUnlessItWaits) {
  form_four();
  EXPECT_THAT(waits(0, {.generation = 1, .blames = 3}),
              ElementsAre("change 1", "change 2", "change 3"));
  EXPECT_THAT(waits(1, {.generation = 1, .blames = 2}), ElementsAre());
  EXPECT_THAT(waits(2, {.generation = 1}), ElementsAre());
  EXPECT_THAT(after(milliseconds{499}), ElementsAre());
  EXPECT_THAT(after(milliseconds{1}), ElementsAre("kill 3"));
  EXPECT_THAT(after(milliseconds{4'999}), ElementsAre());
  EXPECT_THAT(exits(3, kKilled), ElementsAre("form 2: 0 1 2"));
}

// Its process is stuck in the kernel.
TEST_F(MembershipTest, NobodyWaitsForAWorkerThatSigkillDoesNotEnd) {
  form_four();
  for (const int worker : {0, 1, 2}) (void)waits(worker, {.generation = 1, .blames = 3});
  EXPECT_THAT(after(milliseconds{500}), ElementsAre("kill 3"));
  EXPECT_EQ(membership_->wake_up(), now_ + milliseconds{5'000});
  EXPECT_THAT(after(milliseconds{5'000}), ElementsAre("form 2: 0 1 2"));
  EXPECT_THAT(after(milliseconds{1'000}), ElementsAre("start 4 on 1"));  // it counts as failed
  EXPECT_THAT(exits(3, kKilled), ElementsAre());
}

TEST_F(MembershipTest, AWorkerWhomNobodyBlamesIsKilledAfterTheTimeout) {
  form_four({.min_np = 2, .max_np = 4, .timeout = milliseconds{60'000}});
  (void)exits(0, kKilled);
  (void)waits(1, {.generation = 1});
  (void)waits(2, {.generation = 1});
  EXPECT_THAT(after(milliseconds{59'999}), ElementsAre("start 4 on 0"));
  EXPECT_THAT(after(milliseconds{1}), ElementsAre("kill 3"));
  EXPECT_THAT(after(milliseconds{4'999}), ElementsAre());
  EXPECT_THAT(exits(3, kKilled), testing::Contains("form 2: 1 2"));
}

TEST_F(MembershipTest, OfTwoHostsThatCannotReachEachOtherTheLargerSideStays) {
  make({.min_np = 1, .max_np = 3}, {1, 2});
  for (const int worker : {0, 1, 2}) (void)waits(worker);
  (void)waits(0, {.generation = 1, .blames = 2});
  (void)waits(1, {.generation = 1, .blames = 0});
  EXPECT_THAT(waits(2, {.generation = 1, .blames = 0}), ElementsAre("leave 0", "form 2: 1 2"));
  EXPECT_THAT(exits(0, 0), ElementsAre());
  EXPECT_THAT(after(milliseconds{1'000}), ElementsAre("start 3 on 0"));  // it counts as failed
}

TEST_F(MembershipTest, OfTwoEqualSidesTheOlderStays) {
  form_four();
  for (const int worker : {2, 3}) (void)waits(worker, {.generation = 1, .blames = 0});
  (void)waits(1, {.generation = 1, .blames = 3});
  EXPECT_THAT(waits(0, {.generation = 1, .blames = 2}),
              ElementsAre("leave 2", "leave 3", "form 2: 0 1"));
}

TEST_F(MembershipTest, AThirdHostThatBlamesOneOfTwoIsOnTheSideOfTheOther) {
  make({.min_np = 1, .max_np = 3}, {1, 1, 1});
  for (const int worker : {0, 1, 2}) (void)waits(worker);
  (void)waits(0, {.generation = 1, .blames = 1});
  (void)waits(1, {.generation = 1, .blames = 2});
  EXPECT_THAT(waits(2, {.generation = 1, .blames = 1}), ElementsAre("leave 1", "form 2: 0 2"));
}

// Rank 2 gives up a start, because rank 1 is frozen. Rank 0 only sees that rank 2 leaves.
TEST_F(MembershipTest, WhatAWorkerThatLeftAStartBlamesCounts) {
  form_four();
  (void)waits(0, {.generation = 1, .blames = 2, .blamed_left = true, .start_failed = true});
  EXPECT_THAT(waits(2, {.generation = 1, .blames = 1, .start_failed = true}), ElementsAre());
  EXPECT_THAT(after(milliseconds{500}), ElementsAre("kill 1"));
}

// Rank 2 came late to a start. It is no wonder that it did not meet rank 1, which is still at it.
TEST_F(MembershipTest, WhatAWorkerBlamesDoesNotCountIfItDidNotComeToTheStart) {
  form_four();
  (void)waits(0, {.generation = 1, .blames = 2, .start_failed = true});
  EXPECT_THAT(waits(2, {.generation = 1, .blames = 1, .start_failed = true}), ElementsAre());
  EXPECT_THAT(after(milliseconds{500}), ElementsAre());
}

// Rank 2 fails because rank 1 is frozen. Rank 0 only sees that rank 2 leaves, and says so first.
TEST_F(MembershipTest, WhatAWorkerBlamesCountsThoughAnotherHasSaidThatItLeft) {
  form_four();
  (void)waits(0, {.generation = 1, .blames = 2, .blamed_left = true});
  (void)waits(3, {.generation = 1, .blames = 2, .blamed_left = true});
  EXPECT_THAT(waits(2, {.generation = 1, .blames = 1}), ElementsAre());
  EXPECT_THAT(after(milliseconds{500}), ElementsAre("kill 1"));
}

// Each host has a frozen worker, which the sound worker of the other host blames.
TEST_F(MembershipTest, HostsWhoseFrozenWorkersAreBlamedReachEachOther) {
  form_four();
  (void)waits(0, {.generation = 1, .blames = 3});
  (void)waits(2, {.generation = 1, .blames = 1});
  EXPECT_THAT(after(milliseconds{500}), ElementsAre("kill 1", "kill 3"));
  EXPECT_THAT(exits(1, kKilled), ElementsAre());
  EXPECT_THAT(exits(3, kKilled), ElementsAre("form 2: 0 2"));
}

TEST_F(MembershipTest, AHostThatOnlyOneSideBlamesStays) {
  form_four();
  for (const int worker : {0, 1}) (void)waits(worker, {.generation = 1, .blames = 2});
  (void)waits(2, {.generation = 1});  // it was stopped for a while
  EXPECT_THAT(waits(3, {.generation = 1, .blames = 2}), ElementsAre("form 2: 0 1 2 3"));
}

/// A job that has trained on host 0 gets a new host, with which the next generation does not start.
class MembershipWithANewHostTest : public MembershipTest {
 protected:
  void SetUp() override {
    make({.min_np = 1, .max_np = 4, .timeout = milliseconds{100'000}}, {2});
    for (const int worker : {0, 1}) (void)waits(worker);
    EXPECT_THAT(list({2, 1}), ElementsAre("start 2 on 1"));
    join(2, 1);
    EXPECT_THAT(formed_, testing::Contains("form 2: 0 1 2"));
  }
  void join(int newcomer, std::uint32_t generation) {
    EXPECT_THAT(waits(newcomer), ElementsAre("change 0", "change 1"));
    (void)waits(0, {.generation = generation});
    formed_ = waits(1, {.generation = generation});
  }
  /// Nobody's start in the generation ends before 30 s.
  std::vector<std::string> does_not_start(std::uint32_t generation, int newcomer, int blames) {
    now_ += milliseconds{30'000};
    const Waits failed{.generation = generation, .blames = blames, .start_failed = true};
    (void)waits(0, failed);
    (void)waits(1, failed);
    return waits(newcomer, {.generation = generation, .start_failed = true});
  }

  std::vector<std::string> formed_;
};

TEST_F(MembershipWithANewHostTest, TheNextGenerationFormsWithoutAHostThatDoesNotCome) {
  EXPECT_THAT(does_not_start(2, 2, 2), ElementsAre("leave 2", "form 3: 0 1"));
}

TEST_F(MembershipWithANewHostTest, WhenNobodyIsBlamedItFormsWithoutTheYoungestHost) {
  EXPECT_THAT(does_not_start(2, 2, -1), ElementsAre("leave 2", "form 3: 0 1"));
}

TEST_F(MembershipWithANewHostTest, TheHostIsTriedAgainMoreAndMoreSeldom) {
  (void)does_not_start(2, 2, 2);
  (void)exits(2, 0);
  EXPECT_THAT(after(milliseconds{1'000}), ElementsAre("start 3 on 1"));
  join(3, 3);
  EXPECT_THAT(does_not_start(4, 3, 2), ElementsAre("leave 3", "form 5: 0 1"));
  (void)exits(3, 0);
  EXPECT_THAT(after(milliseconds{1'999}), ElementsAre());
  EXPECT_THAT(after(milliseconds{1}), ElementsAre("start 4 on 1"));
}

TEST_F(MembershipWithANewHostTest, NoHostIsLeftOutWhenALossExplainsIt) {
  (void)exits(0, kKilled);
  (void)waits(1, {.generation = 2, .start_failed = true});
  EXPECT_THAT(waits(2, {.generation = 2, .start_failed = true}), ElementsAre("form 3: 1 2"));
}

TEST_F(MembershipWithANewHostTest, ANewcomerWithoutTheStateDoesNotGoOnAlone) {
  for (const int worker : {0, 1}) (void)exits(worker, kKilled);
  EXPECT_THAT(waits(2, {.generation = 2, .start_failed = true}),
              ElementsAre(HasSubstr("finish 75: no worker is left")));
}

TEST_F(MembershipTest, BeforeAnyoneHasTrainedTheOthersBeginAnew) {
  make({.min_np = 1, .max_np = 2}, {2});
  for (const int worker : {0, 1}) (void)waits(worker);
  (void)exits(0, kKilled);
  EXPECT_THAT(waits(1, {.generation = 1, .start_failed = true}), ElementsAre("form 2: 1"));
}

// A step needs worker 2, which has never had the state.
TEST_F(MembershipTest, BeforeAStepCanHaveBeenMadeNobodyHasToHaveTheState) {
  make({.min_np = 1, .max_np = 3}, {3});
  for (const int worker : {0, 1, 2}) (void)waits(worker);
  (void)exits(1, kKilled);
  (void)waits(0, {.generation = 1});
  EXPECT_THAT(waits(2, {.generation = 1, .start_failed = true}), ElementsAre("form 2: 0 2"));
  (void)exits(0, kKilled);
  EXPECT_THAT(waits(2, {.generation = 2, .start_failed = true}), ElementsAre("form 3: 2"));
}

TEST_F(MembershipTest, WhoHasTheStateLeadsThoughNobodyHasTrained) {
  make({.min_np = 1, .max_np = 3}, {3});
  for (const int worker : {0, 1, 2}) (void)waits(worker);
  (void)exits(1, kKilled);
  (void)waits(0, {.generation = 1, .start_failed = true});
  EXPECT_THAT(waits(2, {.generation = 1}), ElementsAre("form 2: 2 0"));
}

TEST_F(MembershipTest, TheJobEndsWhenNoGenerationStarts) {
  make({.min_np = 1, .max_np = 2, .timeout = milliseconds{40'000}}, {2});
  for (const int worker : {0, 1}) (void)waits(worker);
  now_ += milliseconds{30'000};
  (void)waits(0, {.generation = 1, .start_failed = true});
  EXPECT_THAT(waits(1, {.generation = 1, .start_failed = true}), ElementsAre("form 2: 0 1"));
  now_ += milliseconds{30'000};
  (void)waits(0, {.generation = 2, .start_failed = true});
  EXPECT_THAT(waits(1, {.generation = 2, .start_failed = true}),
              ElementsAre(HasSubstr("finish 75: no generation has started")));
}

TEST_F(MembershipTest, AFailedHostGetsANewWorkerAfterACooldownThatDoubles) {
  form_four();
  (void)exits(0, kKilled);
  EXPECT_THAT(after(milliseconds{999}), ElementsAre());
  EXPECT_THAT(after(milliseconds{1}), ElementsAre("start 4 on 0"));
  (void)exits(4, 1);
  EXPECT_THAT(after(milliseconds{1'999}), ElementsAre());
  EXPECT_THAT(after(milliseconds{1}), ElementsAre("start 5 on 0"));
  now_ += milliseconds{50'000};  // as when a program loads before it fails
  (void)exits(5, 1);
  EXPECT_THAT(after(milliseconds{4'000}), ElementsAre("start 6 on 0"));
  now_ += milliseconds{60'000};
  (void)exits(6, 1);
  EXPECT_THAT(after(milliseconds{1'000}), ElementsAre("start 7 on 0"));
}

TEST_F(MembershipTest, AfterTheTrainingAWorkerMayTakeItsTime) {
  form_four();
  for (const int worker : {1, 2, 3}) (void)exits(worker, 0);
  now_ += std::chrono::hours{1};
  EXPECT_THAT(membership_->on_time(now_), testing::IsEmpty());
  EXPECT_THAT(exits(0, 0), ElementsAre("finish 0"));
}

TEST_F(MembershipTest, AfterTheTrainingTheCodesOfStartingWorkersDoNotCount) {
  form_four();
  (void)exits(0, kKilled);
  EXPECT_THAT(after(milliseconds{1'000}), ElementsAre("start 4 on 0"));
  for (const int worker : {1, 2}) (void)exits(worker, 0);
  EXPECT_THAT(exits(4, 1), ElementsAre());
  EXPECT_THAT(exits(3, 0), ElementsAre("finish 0"));
}

TEST_F(MembershipTest, AHostThatIsLostAfterTheTrainingGivesTheJobItsCode) {
  form_four();
  for (const int worker : {0, 1}) (void)exits(worker, 0);
  EXPECT_THAT(loses(1), ElementsAre("finish 69"));

  form_four();
  for (const int worker : {0, 2, 3}) (void)exits(worker, 0);
  EXPECT_THAT(loses(1), ElementsAre());  // its workers had finished
  EXPECT_THAT(exits(1, 0), ElementsAre("finish 0"));
}

TEST_F(MembershipTest, ANewcomerThatExitsHasNotFinishedTheProgram) {
  form_four();
  (void)exits(0, kKilled);
  EXPECT_THAT(after(milliseconds{1'000}), ElementsAre("start 4 on 0"));
  EXPECT_THAT(exits(4, 0), ElementsAre());
  for (const int worker : {1, 2}) (void)waits(worker, {.generation = 1});
  EXPECT_THAT(waits(3, {.generation = 1}), ElementsAre("form 2: 1 2 3"));
  EXPECT_THAT(after(milliseconds{2'000}), ElementsAre("start 5 on 0"));
}

TEST_F(MembershipTest, AfterTheTrainingNobodyWaitsForAWorkerThatStarts) {
  form_four();
  (void)exits(0, kKilled);
  EXPECT_THAT(after(milliseconds{1'000}), ElementsAre("start 4 on 0"));
  for (const int worker : {1, 2}) (void)exits(worker, 0);
  EXPECT_THAT(exits(3, 0), ElementsAre("finish 0"));
}

// The program may be one that never asks for a generation.
TEST_F(MembershipTest, BeforeTheFirstGenerationAllWorkersComeToTheirEnd) {
  make({.min_np = 2, .max_np = 4}, {2, 2});
  for (const int worker : {2, 0, 3}) EXPECT_THAT(exits(worker, 0), ElementsAre());
  EXPECT_THAT(exits(1, 0), ElementsAre("finish 0"));
}

TEST_F(MembershipTest, NewcomersThatWereStartedTogetherJoinTogether) {
  form_four({.min_np = 2, .max_np = 6});
  EXPECT_THAT(list({2, 2, 2}), ElementsAre("start 4 on 2", "start 5 on 2"));
  EXPECT_THAT(waits(4), ElementsAre());
  EXPECT_THAT(waits(5), ElementsAre("change 0", "change 1", "change 2", "change 3"));
  for (const int worker : {0, 1, 2}) EXPECT_THAT(waits(worker, {.generation = 1}), ElementsAre());
  EXPECT_THAT(waits(3, {.generation = 1}), ElementsAre("form 2: 0 1 2 3 4 5"));
}

TEST_F(MembershipTest, NewcomersDoNotWaitLongForEachOther) {
  form_four({.min_np = 2, .max_np = 6});
  (void)list({2, 2, 2});
  (void)waits(4);
  EXPECT_THAT(after(milliseconds{499}), ElementsAre());
  EXPECT_THAT(after(milliseconds{1}), testing::Contains("change 0"));
}

TEST_F(MembershipTest, WorkersOfAHostThatIsGoneLeave) {
  form_four();
  EXPECT_THAT(list({0, 2}), ElementsAre("change 0", "change 1", "change 2", "change 3"));
  for (const int worker : {0, 1, 2}) EXPECT_THAT(waits(worker, {.generation = 1}), ElementsAre());
  EXPECT_THAT(waits(3, {.generation = 1}), ElementsAre("leave 0", "leave 1", "form 2: 2 3"));
  EXPECT_THAT(exits(0, 0), ElementsAre());
}

TEST_F(MembershipTest, TheYoungestLeaveAHostThatHasFewerSlots) {
  form_four();
  (void)list({1, 2});
  for (const int worker : {0, 1, 2}) (void)waits(worker, {.generation = 1});
  EXPECT_THAT(waits(3, {.generation = 1}), ElementsAre("leave 1", "form 2: 0 2 3"));
}

TEST_F(MembershipTest, TheHostOfAWorkerThatWantsToLeaveLeavesAsAWhole) {
  form_four();
  EXPECT_THAT(waits(1, {.generation = 1, .leaves = true}),
              ElementsAre("change 0", "change 2", "change 3", "leave 1"));
  for (const int worker : {0, 2}) (void)waits(worker, {.generation = 1});
  EXPECT_THAT(waits(3, {.generation = 1}), ElementsAre("leave 0", "form 2: 2 3"));
  for (const int worker : {0, 1}) EXPECT_THAT(exits(worker, 0), ElementsAre());
  EXPECT_THAT(after(std::chrono::hours{2}), ElementsAre());
  EXPECT_THAT(list({0, 2}), ElementsAre());
  EXPECT_THAT(list({2, 2}), ElementsAre("start 4 on 0", "start 5 on 0"));
}

TEST_F(MembershipTest, AHostStaysWhoseNewcomersAloneWantToLeave) {
  form_four({.min_np = 2, .max_np = 5});
  EXPECT_THAT(list({2, 3}), ElementsAre("start 4 on 1"));
  EXPECT_THAT(waits(4, {.leaves = true}), ElementsAre("leave 4"));
  (void)exits(4, 0);
  (void)exits(0, kKilled);
  for (const int worker : {1, 2}) (void)waits(worker, {.generation = 1});
  EXPECT_THAT(waits(3, {.generation = 1}), ElementsAre("form 2: 1 2 3"));
}

TEST_F(MembershipTest, AHostWithoutWhichNobodyHasTheStateStays) {
  make({.min_np = 1, .max_np = 4}, {2});
  for (const int worker : {0, 1}) (void)waits(worker);
  EXPECT_THAT(list({2, 1}), ElementsAre("start 2 on 1"));
  (void)waits(2);
  (void)waits(0, {.generation = 1, .leaves = true});
  EXPECT_THAT(waits(1, {.generation = 1}), ElementsAre("form 2: 1 2"));
}

// Of three hosts one goes on, because a generation needs it.
TEST_F(MembershipTest, HostsLeaveAsLongAsEnoughWorkersAreLeft) {
  make({.min_np = 2, .max_np = 6}, {2, 2, 2});
  for (const int worker : {0, 1, 2, 3, 4, 5}) (void)waits(worker);
  for (const int worker : {0, 2, 4}) (void)waits(worker, {.generation = 1, .leaves = true});
  for (const int worker : {1, 3}) (void)waits(worker, {.generation = 1});
  EXPECT_THAT(waits(5, {.generation = 1}), ElementsAre("leave 1", "form 2: 3 5"));
}

TEST_F(MembershipTest, AWorkerThatWantsToLeaveIsNotReplaced) {
  form_four({.min_np = 3, .max_np = 4});
  EXPECT_THAT(waits(1, {.generation = 1, .leaves = true}),
              ElementsAre("change 0", "change 2", "change 3", "leave 1"));
  for (const int worker : {0, 2}) (void)waits(worker, {.generation = 1});
  EXPECT_THAT(waits(3, {.generation = 1}), ElementsAre("form 2: 0 2 3"));
  EXPECT_THAT(exits(1, 0), ElementsAre());
  EXPECT_THAT(after(std::chrono::hours{2}), ElementsAre());
}

TEST_F(MembershipTest, AHostLosesFirstTheSlotsThatWereGivenUp) {
  form_four({.min_np = 3, .max_np = 4});
  (void)waits(1, {.generation = 1, .leaves = true});
  for (const int worker : {0, 2, 3}) (void)waits(worker, {.generation = 1});
  EXPECT_THAT(list({1, 2}), ElementsAre());
  EXPECT_THAT(exits(1, 0), ElementsAre());
  EXPECT_THAT(list({2, 2}), ElementsAre("start 4 on 0"));
}

TEST_F(MembershipTest, ALostHostComesBackAfterItsCooldown) {
  form_four();
  (void)membership_->on_host_lost(0, now_);
  (void)waits(2, {.generation = 1});
  EXPECT_THAT(waits(3, {.generation = 1}), ElementsAre("form 2: 2 3"));
  EXPECT_THAT(after(milliseconds{1'000}), ElementsAre("start 4 on 0", "start 5 on 0"));
}

TEST_F(MembershipTest, TooFewWorkersEndTheJob) {
  form_four({.min_np = 4, .max_np = 4, .timeout = milliseconds{500}});
  (void)exits(0, kKilled);
  for (const int worker : {1, 2, 3}) EXPECT_THAT(waits(worker, {.generation = 1}), ElementsAre());
  EXPECT_THAT(after(milliseconds{499}), ElementsAre());
  EXPECT_THAT(after(milliseconds{1}), ElementsAre(HasSubstr("finish 75: 3 of at least 4")));
}

TEST_F(MembershipTest, TheLimitOfResetsEndsTheJob) {
  form_four({.min_np = 1, .max_np = 4, .reset_limit = 0});
  (void)exits(0, kKilled);
  (void)waits(1, {.generation = 1});
  (void)waits(2, {.generation = 1});
  EXPECT_THAT(waits(3, {.generation = 1}), ElementsAre(HasSubstr("finish 75: the set of ranks")));
}

TEST_F(MembershipTest, TheJobEndsWhenNobodyHasTheState) {
  form_four({.min_np = 1, .max_np = 6});
  (void)list({2, 2, 1});
  (void)waits(4);  // has never been a member
  for (const int worker : {0, 1, 2}) (void)exits(worker, kKilled);
  EXPECT_THAT(exits(3, kKilled), ElementsAre(HasSubstr("finish 75: no worker is left")));
}

TEST_F(MembershipTest, AProgramThatFailsAtItsStartIsNotRetried) {
  make({.min_np = 1, .max_np = 2}, {1, 1});
  EXPECT_THAT(exits(1, 7), ElementsAre());
  EXPECT_THAT(exits(0, 8), ElementsAre(HasSubstr("finish 7: all workers have failed")));
}

TEST_F(MembershipTest, AHostThatIsLostAtItsStartIsRetried) {
  make({.min_np = 1, .max_np = 1}, {1});
  EXPECT_THAT(loses(0), ElementsAre());
  EXPECT_THAT(after(milliseconds{1'000}), ElementsAre("start 1 on 0"));
}

TEST_F(MembershipTest, TheJobEndsWhenTheProgramHasFinished) {
  form_four();
  EXPECT_THAT(exits(0, 0), ElementsAre("change 1", "change 2", "change 3"));
  EXPECT_THAT(exits(1, 0), ElementsAre());
  EXPECT_THAT(exits(2, 7), ElementsAre());  // it is not replaced
  EXPECT_THAT(exits(3, 0), ElementsAre("finish 7"));
}

}  // namespace
}  // namespace hvd::detail
