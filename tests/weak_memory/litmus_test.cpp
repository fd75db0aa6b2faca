// The explorer finds exactly the outcomes that RC11 allows for the classic litmus tests.
#include <atomic>
#include <functional>
#include <new>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "explorer.hpp"

namespace hvd::weak {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kAcqRel = std::memory_order_acq_rel;
constexpr auto kSeqCst = std::memory_order_seq_cst;

struct Memory {
  std::atomic<int> x{0};
  std::atomic<int> y{0};
  int data = 0;
};
struct Litmus {
  Memory memory;
  int r[4]{};  // what the threads read
};
Litmus test;

using Outcomes = std::set<std::string>;
using Threads = std::vector<std::function<void()>>;

Exploration run(Threads threads, Outcomes& outcomes, int registers) {
  Program program;
  program.set_up = [] {
    new (&test) Litmus;
    share(&test.memory, sizeof test.memory, 0);
  };
  program.threads = std::move(threads);
  program.at_end = [&] {
    std::string outcome;
    for (int i = 0; i < registers; ++i) outcome += std::to_string(test.r[i]);
    outcomes.insert(outcome);
  };
  return explore(program);
}

Outcomes outcomes_of(Threads threads, int registers) {
  Outcomes outcomes;
  EXPECT_EQ(run(std::move(threads), outcomes, registers).failure, "");
  return outcomes;
}

std::string failure_of(Threads threads) {
  Outcomes outcomes;
  return run(std::move(threads), outcomes, 0).failure;
}

auto& x = test.memory.x;
auto& y = test.memory.y;
auto& r = test.r;

Threads store_buffering(std::memory_order write, std::memory_order read) {
  return {[=] { x.store(1, write), r[0] = y.load(read); },
          [=] { y.store(1, write), r[1] = x.load(read); }};
}
Threads store_buffering_with(std::memory_order fence) {
  const auto side = [=](std::atomic<int>& mine, std::atomic<int>& theirs, int& result) {
    mine.store(1, kRelaxed);
    std::atomic_thread_fence(fence);
    result = theirs.load(kRelaxed);
  };
  return {[=] { side(x, y, r[0]); }, [=] { side(y, x, r[1]); }};
}

TEST(Litmus, StoreBuffering) {
  const Outcomes all{"00", "01", "10", "11"};
  const Outcomes strong{"01", "10", "11"};
  EXPECT_EQ(outcomes_of(store_buffering(kRelaxed, kRelaxed), 2), all);
  EXPECT_EQ(outcomes_of(store_buffering(kRelease, kAcquire), 2), all);
  EXPECT_EQ(outcomes_of(store_buffering(kSeqCst, kAcquire), 2), all);
  EXPECT_EQ(outcomes_of(store_buffering(kSeqCst, kSeqCst), 2), strong);
  EXPECT_EQ(outcomes_of(store_buffering_with(kAcqRel), 2), all);
  EXPECT_EQ(outcomes_of(store_buffering_with(kSeqCst), 2), strong);
}

Threads message_passing(std::memory_order write, std::memory_order read) {
  return {[=] { x.store(1, kRelaxed), y.store(1, write); },
          [=] { r[0] = y.load(read), r[1] = x.load(kRelaxed); }};
}

TEST(Litmus, MessagePassing) {
  const Outcomes all{"00", "01", "10", "11"};
  EXPECT_EQ(outcomes_of(message_passing(kRelaxed, kAcquire), 2), all);
  EXPECT_EQ(outcomes_of(message_passing(kRelease, kRelaxed), 2), all);
  EXPECT_EQ(outcomes_of(message_passing(kRelease, kAcquire), 2), (Outcomes{"00", "01", "11"}));
}

TEST(Litmus, MessagePassingWithFences) {
  const auto writer = [] {
    x.store(1, kRelaxed);
    std::atomic_thread_fence(kRelease);
    y.store(1, kRelaxed);
  };
  const auto reader = [](std::memory_order order) {
    r[0] = y.load(kRelaxed);
    std::atomic_thread_fence(order);
    r[1] = x.load(kRelaxed);
  };
  EXPECT_EQ(outcomes_of({writer, [=] { reader(kAcquire); }}, 2), (Outcomes{"00", "01", "11"}));
  EXPECT_EQ(outcomes_of({writer, [=] { reader(kRelease); }}, 2),
            (Outcomes{"00", "01", "10", "11"}));
}

TEST(Litmus, LoadBufferingIsForbidden) {
  const Threads threads{[] { r[0] = x.load(kRelaxed), y.store(1, kRelaxed); },
                        [] { r[1] = y.load(kRelaxed), x.store(1, kRelaxed); }};
  EXPECT_EQ(outcomes_of(threads, 2), (Outcomes{"00", "01", "10"}));
}

Threads independent_reads(std::memory_order write, std::memory_order read) {
  return {[=] { x.store(1, write); }, [=] { y.store(1, write); },
          [=] { r[0] = x.load(read), r[1] = y.load(read); },
          [=] { r[2] = y.load(read), r[3] = x.load(read); }};
}

TEST(Litmus, IndependentReadsOfIndependentWrites) {
  EXPECT_EQ(outcomes_of(independent_reads(kRelease, kAcquire), 4).count("1010"), 1U);
  EXPECT_EQ(outcomes_of(independent_reads(kRelease, kAcquire), 4).size(), 16U);
  EXPECT_EQ(outcomes_of(independent_reads(kSeqCst, kSeqCst), 4).size(), 15U);
  EXPECT_EQ(outcomes_of(independent_reads(kSeqCst, kSeqCst), 4).count("1010"), 0U);
  EXPECT_EQ(outcomes_of(independent_reads(kRelease, kSeqCst), 4).count("1010"), 1U);
}

TEST(Litmus, IndependentReadsWithFences) {
  const auto reader = [](std::atomic<int>& first, std::atomic<int>& second, int at) {
    r[at] = first.load(kRelaxed);
    std::atomic_thread_fence(kSeqCst);
    r[at + 1] = second.load(kRelaxed);
  };
  const Threads threads{[] { x.store(1, kRelaxed); }, [] { y.store(1, kRelaxed); },
                        [=] { reader(x, y, 0); }, [=] { reader(y, x, 2); }};
  EXPECT_EQ(outcomes_of(threads, 4).size(), 15U);
}

Threads two_writes_twice(std::memory_order order) {
  return {[=] { x.store(1, order), y.store(2, order); },
          [=] { y.store(1, order), x.store(2, order); },
          [] { r[0] = x.load(kRelaxed), r[1] = x.load(kRelaxed); },
          [] { r[2] = y.load(kRelaxed), r[3] = y.load(kRelaxed); }};
}

TEST(Litmus, TwoWritesTwice) {
  // x is 2 and then 1, and y is 2 and then 1.
  EXPECT_EQ(outcomes_of(two_writes_twice(kRelaxed), 4).count("2121"), 1U);
  EXPECT_EQ(outcomes_of(two_writes_twice(kRelease), 4).count("2121"), 1U);
  EXPECT_EQ(outcomes_of(two_writes_twice(kSeqCst), 4).count("2121"), 0U);
}

TEST(Litmus, ReadsOfOneLocationAreCoherent) {
  const Threads threads{[] { x.store(1, kRelaxed); }, [] { x.store(2, kRelaxed); },
                        [] { r[0] = x.load(kRelaxed), r[1] = x.load(kRelaxed); },
                        [] { r[2] = x.load(kRelaxed), r[3] = x.load(kRelaxed); }};
  const Outcomes outcomes = outcomes_of(threads, 4);
  EXPECT_EQ(outcomes.count("1221"), 0U);
  EXPECT_EQ(outcomes.count("2112"), 0U);
  EXPECT_EQ(outcomes.count("1200"), 1U);
  EXPECT_EQ(outcomes.count("1020"), 0U);
}

TEST(Litmus, ReadModifyWritesAreAtomic) {
  const auto add = [](int at) { r[at] = x.fetch_add(1, kRelaxed); };
  EXPECT_EQ(outcomes_of({[=] { add(0); }, [=] { add(1); }}, 2), (Outcomes{"01", "10"}));
  const auto exchange = [](int at) {
    int expected = 0;
    r[at] = x.compare_exchange_strong(expected, 1, kRelaxed) ? 1 : 0;
  };
  EXPECT_EQ(outcomes_of({[=] { exchange(0); }, [=] { exchange(1); }}, 2), (Outcomes{"01", "10"}));
}

Threads release_sequence(std::function<void()> middle) {
  return {[] { test.memory.data = 1, y.store(1, kRelease); }, std::move(middle),
          [] {
            if (y.load(kAcquire) == 2) r[0] = test.memory.data;
          }};
}

TEST(Litmus, OnlyReadModifyWritesContinueAReleaseSequence) {
  const auto added = release_sequence([] { y.fetch_add(1, kRelaxed); });
  EXPECT_EQ(outcomes_of(added, 1), (Outcomes{"0", "1"}));
  const auto stored = release_sequence([] {
    if (y.load(kRelaxed) == 1) y.store(2, kRelaxed);
  });
  EXPECT_EQ(failure_of(stored), "data race");
}

TEST(Litmus, DataRaces) {
  const auto passes = [](std::memory_order write, std::memory_order read) {
    return failure_of({[=] { test.memory.data = 1, y.store(1, write); },
                       [=] {
                         if (y.load(read) == 1) r[0] = test.memory.data;
                       }});
  };
  EXPECT_EQ(passes(kRelease, kAcquire), "");
  EXPECT_EQ(passes(kRelaxed, kAcquire), "data race");
  EXPECT_EQ(passes(kRelease, kRelaxed), "data race");
}

TEST(Explorer, RepeatsAWrongExecutionThoughItHasTheFirstStoreOfAThread) {
  // Until the second thread stores to x, the first load has no point at which it may run.
  const Threads threads{[] {
                          const int before = x.load(kRelaxed);
                          y.fetch_add(1, kRelaxed);
                          check(before == x.load(kRelaxed), "x has changed");
                        },
                        [] {
                          if (y.fetch_add(0, kRelaxed) == 0) x.store(1, kRelaxed);
                        }};
  EXPECT_EQ(failure_of(threads), "x has changed");
}

}  // namespace
}  // namespace hvd::weak
