#include "observe/step_meter.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace hvd::observe {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

Clock::time_point at(int millisecond) { return Clock::time_point(milliseconds(millisecond)); }

TEST(StepMeter, SaysWhereAStepWent) {
  StepMeter meter;
  Stats counters;
  meter.communication(at(0), at(5));  // before the first mark: in the totals only
  meter.step(at(10), counters);
  EXPECT_EQ(meter.fill(counters).step.count, 0U);

  meter.communication(at(20), at(50));
  meter.blocked(at(40), at(50));
  meter.blocked(at(45), at(60));  // another thread: counts once
  meter.negotiated(milliseconds(3));
  meter.negotiated(milliseconds(4));
  meter.waited_for_data(milliseconds(2));
  meter.packed(milliseconds(1));
  counters.completed = 7;
  counters.schedule_hits = 5;
  counters.collectives = 2;
  counters.bytes = 1000;
  counters.fused_bytes = 900;
  counters.control_messages_sent = 3;
  counters.control_messages_received = 4;
  meter.step(at(110), counters);

  const Stats stats = meter.fill(counters);
  const StepSample& last = stats.step.last;
  EXPECT_EQ(stats.step.count, 1U);
  EXPECT_EQ(stats.step.window, 1U);
  EXPECT_EQ(last.duration, milliseconds(100));
  EXPECT_EQ(last.exposed, milliseconds(20));
  EXPECT_EQ(last.compute, milliseconds(80));
  EXPECT_EQ(last.communication, milliseconds(30));
  EXPECT_EQ(last.negotiation, milliseconds(7));
  EXPECT_EQ(last.negotiated, 2U);
  EXPECT_EQ(last.ready_wait, milliseconds(2));
  EXPECT_EQ(last.pack, milliseconds(1));
  EXPECT_EQ(last.operations, 7U);
  EXPECT_EQ(last.schedule_hits, 5U);
  EXPECT_EQ(last.collectives, 2U);
  EXPECT_EQ(last.bytes, 1000U);
  EXPECT_EQ(last.fused_bytes, 900U);
  EXPECT_EQ(last.messages, 7U);
  EXPECT_EQ(stats.communication, milliseconds(35));
  EXPECT_EQ(stats.exposed, milliseconds(20));
  EXPECT_EQ(stats.completed, 7U);

  meter.step(at(120), counters);  // nothing happened
  const StepSample idle = meter.fill(counters).step.last;
  EXPECT_EQ(idle.duration, milliseconds(10));
  EXPECT_EQ(idle.compute, milliseconds(10));
  EXPECT_EQ(idle.messages, 0U);
  EXPECT_EQ(idle.communication, nanoseconds(0));
}

TEST(StepMeter, SummarizesTheLastHundredSteps) {
  StepMeter meter;
  Stats counters;
  int now = 0;
  meter.step(at(now), counters);
  for (int i = 0; i < 50; ++i) meter.step(at(now += 1000), counters);  // forgotten
  for (int i = 1; i <= 100; ++i) {
    counters.completed += static_cast<std::uint64_t>(i);
    meter.step(at(now += i), counters);
  }
  const StepStats steps = meter.fill(counters).step;
  EXPECT_EQ(steps.count, 150U);
  EXPECT_EQ(steps.window, 100U);
  EXPECT_EQ(steps.last.duration, milliseconds(100));
  EXPECT_EQ(steps.p50.duration, milliseconds(50));
  EXPECT_EQ(steps.p99.duration, milliseconds(99));
  EXPECT_EQ(steps.mean.duration, std::chrono::microseconds(50'500));
  EXPECT_EQ(steps.mean.operations, 50U);
  EXPECT_EQ(steps.p99.operations, 99U);
}

TEST(StepMeter, AWaitLongerThanItsStepLeavesNoNegativeCompute) {
  StepMeter meter;
  meter.step(at(0), {});
  meter.step(at(90), {});
  meter.blocked(at(10), at(95));
  meter.step(at(100), {});
  const StepSample last = meter.fill({}).step.last;
  EXPECT_EQ(last.exposed, milliseconds(85));
  EXPECT_EQ(last.compute, nanoseconds(0));
}

TEST(StepMeter, TakesEveryThread) {
  StepMeter meter;
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  std::atomic<std::uint64_t> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        meter.blocked(at(10 * i), at(10 * i + 5));
        meter.communication(at(10 * i), at(10 * i + 5));
        meter.negotiated(nanoseconds(1));
        Stats counters;
        counters.completed = done.fetch_add(1) + 1;
        if (i % 10 == 0) meter.step(at(10 * i), counters);
        if (i % 100 == 0) (void)meter.fill(counters);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Stats stats = meter.fill({});
  EXPECT_EQ(stats.negotiated, static_cast<std::uint64_t>(kThreads * kEach));
  EXPECT_EQ(stats.negotiation, nanoseconds(kThreads * kEach));
  EXPECT_EQ(stats.step.count, static_cast<std::uint64_t>(kThreads * kEach / 10 - 1));
  EXPECT_LE(stats.step.p99.operations, static_cast<std::uint64_t>(kThreads * kEach));
}

}  // namespace
}  // namespace hvd::observe
