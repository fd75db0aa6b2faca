// Tests the frozen schedule in whole contexts with ranks as threads.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include <hvd/hvd.hpp>

namespace hvd {
namespace {

using testing::Each;
using testing::HasSubstr;

using Body = std::function<void(Context&)>;
using Configure = std::function<void(Config&)>;

void expect_run(int size, const Body& body, const Configure& configure = {}) {
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(size, [&](int rank) {
    Config config = test::thread_config(rank, size);
    if (configure) configure(config);
    const auto context = make_context(config, store);
    body(*context);
  });
}

std::uint64_t control_messages(Context& context) {
  const Stats stats = context.stats();
  return stats.control_messages_sent + stats.control_messages_received;
}

/// The gradients of one backward pass. Each value depends on step, tensor and rank.
class Step {
 public:
  Step(Context& context, int tensors) : context_(context) {
    for (int i = 0; i < tensors; ++i) data_.emplace_back(static_cast<std::size_t>(3 + 7 * i));
  }

  static float value(int step, int tensor, int rank) {
    return static_cast<float>(100 * step + 10 * tensor + rank);
  }

  /// Submits all but `left_out`, in an order that depends on the rank and the step.
  void begin(int step, int left_out = -1) {
    step_ = step;
    const int count = static_cast<int>(data_.size());
    for (int i = 0; i < count; ++i) {
      const int tensor = (i + step * (1 + context_.rank())) % count;
      if (tensor != left_out) submit(tensor);
    }
  }
  void submit(int tensor) {
    auto& mine = data_[static_cast<std::size_t>(tensor)];
    std::fill(mine.begin(), mine.end(), value(step_, tensor, context_.rank()));
    works_.push_back(allreduce_async(
        mine.data(), mine.data(), std::ssize(mine), DType::f32,
        {.name = "g" + std::to_string(tensor), .op = ReduceOp::sum, .context = &context_}));
  }
  void finish() {
    for (const Work& work : works_) work.wait();
    works_.clear();
    for (int tensor = 0; tensor < std::ssize(data_); ++tensor) {
      float expected = 0;
      for (int rank = 0; rank < context_.size(); ++rank) expected += value(step_, tensor, rank);
      EXPECT_THAT(data_[static_cast<std::size_t>(tensor)], Each(expected))
          << "step " << step_ << " tensor " << tensor << " rank " << context_.rank();
    }
  }
  void run(int step) {
    begin(step);
    finish();
  }

 private:
  Context& context_;
  std::vector<std::vector<float>> data_;
  std::vector<Work> works_;
  int step_ = 0;
};

/// Runs identical steps until the schedule is frozen, the same number on every rank.
int run_until_frozen(Context& context, Step& step) {
  constexpr int kSteps = 10;
  for (int i = 0; i < kSteps; ++i) step.run(i);
  EXPECT_EQ(context.stats().freezes, 1U);
  return kSteps;
}

class FrozenAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FrozenAt, testing::ValuesIn(test::rank_counts({1, 2, 3, 4, 5, 8})));

TEST_P(FrozenAt, StepsCostNoControlMessage) {
  std::latch counted(GetParam());
  expect_run(GetParam(), [&](Context& context) {
    Step step(context, 20);
    run_until_frozen(context, step);
    const std::uint64_t before = control_messages(context);
    const Stats hits = context.stats();
    for (int i = 10; i < 110; ++i) step.run(i);
    const std::uint64_t messages = control_messages(context);
    const Stats after = context.stats();
    counted.arrive_and_wait();  // a shutdown request would thaw
    EXPECT_EQ(messages, before);
    EXPECT_EQ(after.schedule_hits - hits.schedule_hits, 100U * 20U);
    EXPECT_LT(after.collectives - hits.collectives, 100U * 20U) << "nothing was fused";
    EXPECT_EQ(after.thaws, 0U);
  });
}

TEST_P(FrozenAt, AnAdHocOperationBetweenStepsThawsAndFreezesAgain) {
  expect_run(GetParam(), [&](Context& context) {
    Step step(context, 8);
    int next = run_until_frozen(context, step);
    for (int round = 0; round < 5; ++round) {
      for (int i = 0; i < 5; ++i) step.run(next++);
      std::vector<double> metric(1, context.rank());
      allreduce(
          std::span(metric),
          {.name = "metric" + std::to_string(round), .op = ReduceOp::max, .context = &context});
      EXPECT_THAT(metric, Each(context.size() - 1));
    }
    for (int i = 0; i < 5; ++i) step.run(next++);
    const Stats stats = context.stats();
    EXPECT_GE(stats.freezes, 2U);
    EXPECT_GE(stats.thaws, 1U);
    EXPECT_GT(stats.schedule_hits, 0U);
  });
}

TEST_P(FrozenAt, WhatOneRankSubmitsLateIsWaitedFor) {
  const int size = GetParam();
  std::latch others_wait(size);
  expect_run(size, [&](Context& context) {
    Step step(context, 6);
    const int next = run_until_frozen(context, step);
    const bool late = context.rank() == size - 1;
    step.begin(next, late ? 2 : -1);
    others_wait.arrive_and_wait();
    if (late) step.submit(2);
    step.finish();
    step.run(next + 1);
  });
}

// A rank that waits needs this operation, even if the schedule has another one first.
TEST_P(FrozenAt, AnOperationThatNobodyRepeatsHoldsNothingUp) {
  expect_run(GetParam(), [&](Context& context) {
    Step step(context, 6);
    int next = run_until_frozen(context, step);
    std::vector<float> data(4, 1.0F);
    for (int i = 0; i < 20; ++i, ++next) {  // "g5" is left out from now on: g0 … g4 go on
      for (int tensor = 0; tensor < 5; ++tensor) {
        allreduce(std::span(data),
                  {.name = "h" + std::to_string(tensor), .op = ReduceOp::max, .context = &context});
      }
    }
    EXPECT_THAT(data, Each(1.0F));
    step.run(next);
  });
}

TEST_P(FrozenAt, AShapeChangeOnOneRankIsAMismatchAndTheNameWorksAgain) {
  const int size = GetParam();
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  expect_run(size, [&](Context& context) {
    Step step(context, 4);
    int next = run_until_frozen(context, step);
    std::vector<float> data(context.rank() == 0 ? 3 : 5, 1.0F);
    try {
      allreduce(std::span(data), {.name = "g0", .op = ReduceOp::sum, .context = &context});
      ADD_FAILURE() << "succeeded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::mismatch);
      EXPECT_THAT(error.what(), HasSubstr("[5] on rank"));
    }
    for (int i = 0; i < 10; ++i) step.run(next++);
  });
}

TEST_P(FrozenAt, BlockingOperationsOfOneNameAfterTheOtherFreezeToo) {
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    for (int i = 0; i < 200; ++i) {
      for (const char* name : {"first", "second", "third"}) {
        std::vector<std::int64_t> data(2, i + context.rank());
        allreduce(std::span(data), {.name = name, .op = ReduceOp::sum, .context = &context});
        EXPECT_THAT(data, Each(size * i + size * (size - 1) / 2));
      }
    }
    const Stats stats = context.stats();
    EXPECT_GT(stats.schedule_hits, 500U);
    EXPECT_LT(stats.control_messages_sent + stats.control_messages_received,
              40U * static_cast<unsigned>(size));
  });
}

TEST(Frozen, ThousandsOfNamesFreezeAndNamesThatChangeEveryStepDoNot) {
  constexpr int kNames = test::kSanitized ? 1'000 : 10'000;
  expect_run(2, [&](Context& context) {
    std::vector<float> data(kNames);
    const auto step = [&](const std::string& prefix) {
      std::vector<Work> works;
      works.reserve(kNames);
      for (int i = 0; i < kNames; ++i) {
        auto& one = data[static_cast<std::size_t>(i)];
        one = static_cast<float>(i);
        works.push_back(allreduce_async(
            &one, &one, 1, DType::f32,
            {.name = prefix + std::to_string(i), .op = ReduceOp::sum, .context = &context}));
      }
      for (const Work& work : works) work.wait();
      for (int i = 0; i < kNames; ++i) {
        ASSERT_EQ(data[static_cast<std::size_t>(i)], static_cast<float>(2 * i));
      }
    };
    for (int i = 0; i < 6; ++i) step("same/");
    EXPECT_GT(context.stats().schedule_hits, 0U);
    for (int i = 0; i < 4; ++i) step("step" + std::to_string(i) + "/");
    EXPECT_EQ(context.stats().freezes, 1U);
  });
}

TEST_P(FrozenAt, TheStallOfARankThatNeverComesIsStillReported) {
  const int size = GetParam();
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  std::latch failed(size);
  expect_run(
      size,
      [&](Context& context) {
        Step step(context, 3);
        const int next = run_until_frozen(context, step);
        if (context.rank() == 1) {
          failed.arrive_and_wait();
          return;
        }
        step.begin(next);
        try {
          step.finish();
          ADD_FAILURE() << "succeeded";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Errc::timeout);
          EXPECT_EQ(error.fault().rank, 1);
          EXPECT_THAT(error.what(), HasSubstr("'g"));
        }
        failed.arrive_and_wait();
      },
      [](Config& config) { config.stall_abort = std::chrono::seconds(2); });
}

/// The kernel's numbers about a thread of this process.
struct ThreadState {
  bool asleep = false;
  std::uint64_t page_faults = 0;  // pages brought in or copied so far
};

/// Returns the states of all threads with that name.
std::vector<ThreadState> threads_named(std::string_view wanted) {
  std::vector<ThreadState> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream comm(task.path() / "comm");
    if (!std::getline(comm, name) || name != wanted) continue;
    std::string line;
    std::ifstream stat(task.path() / "stat");
    std::getline(stat, line);
    std::istringstream fields(line.substr(line.rfind(')') + 1));
    std::string state;
    std::string skipped;
    fields >> state;
    for (int field = 0; field < 6; ++field) fields >> skipped;  // up to the flags
    ThreadState thread{state == "S", 0};
    fields >> thread.page_faults;
    found.push_back(thread);
  }
  return found;
}

std::uint64_t page_faults_of_loops() {
  std::uint64_t sum = 0;
  for (const ThreadState& loop : threads_named("hvd-loop")) sum += loop.page_faults;
  return sum;
}

// The loop thread sends the heartbeats, so it must not copy tensors when the job fails, however
// large they are.
TEST(Frozen, TheLoopThreadCopiesNoTensorWhenTheJobFails) {
  constexpr std::int64_t kBytes = std::int64_t{16} << 20;
  constexpr std::uint64_t kPages = kBytes / 4096;
  std::latch failed(2);
  expect_run(
      2,
      [&](Context& context) {
        const std::shared_ptr<Arena> arena = context.arena();
        auto* const data = static_cast<float*>(arena->allocate(kBytes));
        ASSERT_NE(data, nullptr);
        std::fill_n(data, kBytes / sizeof(float), 0.0F);
        const auto submit = [&] {
          return allreduce_async(data, data, kBytes / sizeof(float), DType::f32,
                                 {.name = "g", .op = ReduceOp::sum, .context = &context});
        };
        for (int step = 0; step < 10; ++step) submit().wait();
        const std::uint64_t hits = context.stats().schedule_hits;
        ASSERT_GT(hits, 0U);
        if (context.rank() == 1) {
          failed.arrive_and_wait();
          return;
        }
        const Work work = submit();
        // Waits until the tensor is announced and the executor sleeps, because the other rank does
        // not come.
        const auto deadline = Clock::now() + std::chrono::seconds(20);
        const auto waits = [&] {
          const auto executors = threads_named("hvd-executor");
          return context.stats().schedule_hits > hits &&
                 std::all_of(executors.begin(), executors.end(),
                             [](const ThreadState& thread) { return thread.asleep; });
        };
        while (!waits()) ASSERT_LT(Clock::now(), deadline);
        const std::uint64_t before = page_faults_of_loops();
        context.abort("the test says so");
        EXPECT_THROW(work.wait(), Error);
        EXPECT_LT(page_faults_of_loops() - before, kPages / 4);
        failed.arrive_and_wait();
      },
      [](Config& config) { config.arena_size = 2 * kBytes; });
}

}  // namespace
}  // namespace hvd
