// Tests who is called the slowest rank, also over very many steps of noise.
#include "policy/straggler.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include "engine/observer.hpp"
#include "policy/messages.hpp"
#include "policy/protocol.hpp"

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using testing::NiceMock;

BlockedTimes of_rank(int rank, double mean, double variance = 0) {
  return {.ranks = 1, .step = 0.1, .least = {rank, mean, variance}, .second = {}};
}

BlockedTimes sum_of(const std::vector<BlockedTimes>& all) {
  BlockedTimes sum;
  for (const BlockedTimes& times : all) sum.add(times);
  return sum;
}

TEST(Straggler, TheRankThatWaitsLeastIsTheSlowest) {
  const auto times = sum_of({of_rank(0, 0.03), of_rank(1, 0.031), of_rank(2, 0.01)});
  const Slowest slowest = slowest_of(times, 3);
  EXPECT_EQ(slowest.rank, 2);
  EXPECT_DOUBLE_EQ(slowest.cost, 0.02);
  EXPECT_DOUBLE_EQ(slowest.step, 0.1);
  BlockedTimes longer = of_rank(1, 0.031);
  longer.step = 0.3;
  EXPECT_EQ(slowest_of(sum_of({of_rank(0, 0), longer, of_rank(2, 0.03)}), 3).rank, 0);
  longer.step = 0.31;
  EXPECT_EQ(slowest_of(sum_of({longer, of_rank(0, 0), of_rank(2, 0.03)}), 3).rank, -1);
}

TEST(Straggler, ASummaryDoesNotDependOnTheOrder) {
  std::vector<int> order{0, 1, 2, 3};
  const auto summary = [&order] {
    std::vector<BlockedTimes> all;
    for (const int rank : order) all.push_back(of_rank(rank, 0.01 * (rank + 1)));
    // The last two come through a relay.
    BlockedTimes relayed = all[3];
    relayed.add(all[2]);
    return sum_of({all[0], all[1], relayed});
  };
  const BlockedTimes first = summary();
  EXPECT_EQ(first.least.rank, 0);
  EXPECT_EQ(first.second.rank, 1);
  while (std::next_permutation(order.begin(), order.end())) EXPECT_EQ(summary(), first);
}

TEST(Straggler, NobodyIsNamedWithoutReason) {
  const std::vector<BlockedTimes> clear{of_rank(0, 0.03), of_rank(1, 0.0)};
  EXPECT_EQ(slowest_of(sum_of(clear), 2).rank, 1);
  EXPECT_EQ(slowest_of(sum_of(clear), 3).rank, -1);  // a rank has not said anything
  EXPECT_EQ(slowest_of(of_rank(0, 0.0), 1).rank, -1);
  BlockedTimes false_number = of_rank(1, 0.0);
  false_number.ranks = 0x7fffffff;
  EXPECT_EQ(slowest_of(sum_of({of_rank(0, 0.03), false_number}), 2).rank, -1);
  // less than a tenth of a step
  EXPECT_EQ(slowest_of(sum_of({of_rank(0, 0.009), of_rank(1, 0.0)}), 2).rank, -1);
  // two ranks are equally slow
  EXPECT_EQ(slowest_of(sum_of({of_rank(0, 0.03), of_rank(1, 0), of_rank(2, 0)}), 3).rank, -1);
  // noise
  const double noise = 0.006 * 0.006 / 2;
  EXPECT_EQ(slowest_of(sum_of({of_rank(0, 0.03, noise), of_rank(1, 0.0, noise)}), 2).rank, -1);
}

TEST(Straggler, ItIsNewsOnceInAWhile) {
  SlowestNews news;
  const Clock::time_point start{};
  EXPECT_FALSE(news.is_news({}, start));
  EXPECT_TRUE(news.is_news({.rank = 1}, start));
  EXPECT_FALSE(news.is_news({}, start + milliseconds(1)));
  EXPECT_FALSE(news.is_news({.rank = 1}, start + milliseconds(2)));
  EXPECT_TRUE(news.is_news({.rank = 2}, start + milliseconds(3)));
  EXPECT_FALSE(news.is_news({.rank = 1}, start + milliseconds(4)));  // slow in turn
  EXPECT_FALSE(news.is_news({.rank = 2}, start + milliseconds(5)));
  EXPECT_TRUE(news.is_news({.rank = 1}, start + SlowestNews::kQuiet));
  EXPECT_TRUE(news.is_news({.rank = 2}, start + milliseconds(3) + SlowestNews::kQuiet));
}

/// Ranks that compute for times that the test chooses, and then wait for each other.
class Steps {
 public:
  explicit Steps(std::size_t ranks) {
    for (std::size_t i = 0; i < ranks; ++i) {
      observers_.push_back(std::make_unique<Observer>(TimelineOptions{}));
    }
  }
  void step(const std::vector<nanoseconds>& computes) {
    const nanoseconds longest = *std::max_element(computes.begin(), computes.end());
    constexpr nanoseconds kCollective = milliseconds(1);
    const Clock::time_point end = now_ + longest + kCollective;
    for (std::size_t i = 0; i < observers_.size(); ++i) {
      observers_[i]->meter.blocked(now_ + computes[i], end);
      observers_[i]->mark_step(end);
    }
    now_ = end;
  }
  [[nodiscard]] Slowest slowest() const {
    BlockedTimes all;
    for (std::size_t i = 0; i < observers_.size(); ++i) {
      all.add(observers_[i]->blocked_times(static_cast<int>(i)));
    }
    return slowest_of(all, static_cast<int>(observers_.size()));
  }

 private:
  Clock::time_point now_{};
  std::vector<std::unique_ptr<Observer>> observers_;
};

/// Draws times around `mean`, which must not be below `least`.
nanoseconds draw(std::mt19937_64& random, milliseconds mean, milliseconds deviation) {
  std::normal_distribution<double> normal(static_cast<double>(nanoseconds(mean).count()),
                                          static_cast<double>(nanoseconds(deviation).count()));
  return nanoseconds(std::max<std::int64_t>(0, static_cast<std::int64_t>(normal(random))));
}

TEST(Straggler, TwentyMillisecondsAreNoticedWithinTwentySteps) {
  constexpr std::size_t kRanks = 4;
  Steps steps(kRanks);
  std::mt19937_64 random(4);
  std::vector<nanoseconds> computes(kRanks);
  const auto step = [&](nanoseconds delay) {
    for (nanoseconds& one : computes) one = draw(random, milliseconds(30), milliseconds(3));
    computes[2] += delay;
    steps.step(computes);
  };
  for (int i = 0; i < 200; ++i) {
    step({});
    EXPECT_EQ(steps.slowest().rank, -1);
  }
  for (int i = 0; i < 20; ++i) step(milliseconds(20));
  EXPECT_EQ(steps.slowest().rank, 2);
  EXPECT_NEAR(steps.slowest().cost, 0.018, 0.004);
  for (int i = 0; i < 20; ++i) step({});
  EXPECT_EQ(steps.slowest().rank, -1);
}

// The kinds of noise are those of a busy machine: normal, and rare long interruptions.
TEST(Straggler, NoiseNamesNobodyInAHundredThousandSteps) {
  constexpr std::size_t kRanks = 4;
  constexpr int kSteps = test::kSanitized ? 5'000 : 100'000;
  for (const bool interrupted : {false, true}) {
    Steps steps(kRanks);
    std::mt19937_64 random(5);
    std::vector<nanoseconds> computes(kRanks);
    int named = 0;
    for (int i = 0; i < kSteps; ++i) {
      for (nanoseconds& one : computes) {
        one = draw(random, milliseconds(30), milliseconds(6));
        if (interrupted && random() % 50 == 0) one += milliseconds(200);
      }
      steps.step(computes);
      if (steps.slowest().rank >= 0) ++named;
    }
    EXPECT_EQ(named, 0) << (interrupted ? "with interruptions" : "without interruptions");
  }
}

class Actions : public Protocol::Actions {
 public:
  MOCK_METHOD(void, send, (const std::vector<int>&, const Message&), (override));
  MOCK_METHOD(void, run, (const FusedBatch&), (override));
  MOCK_METHOD(void, carry_out, (const Rejection&), (override));
  MOCK_METHOD(void, carry_out, (const SetAdded&), (override));
  MOCK_METHOD(void, carry_out, (const SetRemoved&), (override));
  MOCK_METHOD(void, carry_out, (const AllJoined&), (override));
  MOCK_METHOD(void, carry_out, (const Freeze&), (override));
  MOCK_METHOD(std::uint64_t, stop_replay, (), (override));
  MOCK_METHOD(void, resume, (const std::vector<std::uint64_t>&), (override));
  MOCK_METHOD(void, stalled, (const Stall&), (override));
  MOCK_METHOD(void, failed, (const Verdict&), (override));
  MOCK_METHOD(void, aborted, (const Abort&), (override));
  MOCK_METHOD(void, shutdown_acknowledged, (), (override));
  MOCK_METHOD(void, slowest, (const Slowest&, bool), (override));
};

/// Protocols whose messages arrive at once.
class Job {
 public:
  Job(int size, int fanout) : found(static_cast<std::size_t>(size)), times_(found.size()) {
    for (int rank = 0; rank < size; ++rank) {
      auto& actions = *actions_.emplace_back(std::make_unique<NiceMock<Actions>>());
      ON_CALL(actions, send).WillByDefault([this, rank](const auto& to, const Message& message) {
        for (const int one : to)
          ranks_.at(static_cast<std::size_t>(one))->received({rank}, encode(message), now_);
      });
      ON_CALL(actions, slowest).WillByDefault([this, rank](const Slowest& slowest, bool is_news) {
        found[static_cast<std::size_t>(rank)] = slowest.rank;
        news += is_news ? 1 : 0;
      });
      ON_CALL(actions, failed).WillByDefault([](const Verdict& verdict) {
        FAIL() << verdict.cause;
      });
      Protocol::Settings settings;
      settings.rank = rank;
      settings.size = size;
      settings.fanout = fanout;
      settings.detector = {milliseconds(100), milliseconds(2'000), milliseconds(2'000),
                           milliseconds(200)};
      ranks_.push_back(std::make_unique<Protocol>(settings, actions, now_));
    }
  }
  void blocked(int rank, double mean) {
    times_[static_cast<std::size_t>(rank)] = of_rank(rank, mean);
  }
  /// Long enough for the times to reach rank 0, and for its answer to reach all others.
  void beat() {
    for (int round = 0; round < 6; ++round) {
      now_ += milliseconds(100);
      for (std::size_t i = ranks_.size(); i-- > 0;) ranks_[i]->tick(times_[i], now_);
    }
  }

  std::vector<int> found;  ///< by rank
  int news = 0;

 private:
  Clock::time_point now_{};
  std::vector<BlockedTimes> times_;
  std::vector<std::unique_ptr<NiceMock<Actions>>> actions_;
  std::vector<std::unique_ptr<Protocol>> ranks_;
};

TEST(Straggler, AllRanksHearOfItAlsoThroughRelays) {
  constexpr int kSize = 9;
  for (const int fanout : {0, 3, 2}) {  // the last one has three levels
    Job job(kSize, fanout);
    for (int rank = 0; rank < kSize; ++rank) job.blocked(rank, rank == 5 ? 0.01 : 0.05);
    job.beat();
    EXPECT_THAT(job.found, testing::Each(5)) << "fanout " << fanout;
    EXPECT_EQ(job.news, 1);
    for (int rank = 0; rank < kSize; ++rank) job.blocked(rank, 0.05);
    job.beat();
    EXPECT_THAT(job.found, testing::Each(-1));
    EXPECT_EQ(job.news, 1);
  }
}

TEST(Straggler, ARankOutsideOfTheJobIsNotBelieved) {
  NiceMock<Actions> actions;
  Protocol::Settings settings;
  settings.size = 2;
  settings.detector = {milliseconds(100), milliseconds(2'000), milliseconds(2'000),
                       milliseconds(200)};
  Protocol rank0(settings, actions, {});
  EXPECT_CALL(actions, failed(testing::Field(&Verdict::rank, 1)));
  rank0.received({1}, encode(Heartbeat{of_rank(2, 0.1), {}}), {});
}

}  // namespace
}  // namespace hvd
