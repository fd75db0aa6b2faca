// Tests whole contexts with a backend whose calls continue after they have returned, as on a
// device.
#include <condition_variable>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>

#include <hvd/core/internal/backend.hpp>
#include <hvd/core/internal/ready_fence.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/hvd.hpp>
#include <hvd/ops/internal/ready_fence.hpp>

namespace hvd {
namespace {

using std::chrono::seconds;
using testing::Each;
using testing::ElementsAre;

constexpr seconds kPatience{30};

/// A device that completes collectives when the test tells it to.
class FakeDevice {
 public:
  /// Lets this many more collectives complete.
  void complete(int collectives) {
    const std::lock_guard lock(mutex_);
    allowed_ += collectives;
  }
  void complete_all() { complete(1'000'000); }
  void complete_no_more() {
    const std::lock_guard lock(mutex_);
    allowed_ = 0;
  }
  /// Gives the following collectives an event for their end.
  void give_events() {
    const std::lock_guard lock(mutex_);
    gives_events_ = true;
  }
  [[nodiscard]] std::shared_ptr<void> event() const {
    const std::lock_guard lock(mutex_);
    return gives_events_ ? std::make_shared<int>() : nullptr;
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    fails_ = true;
  }
  /// Waits until this many calls have been made.
  void expect_calls(std::size_t calls) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return calls_.size() >= calls; }));
  }
  [[nodiscard]] std::vector<std::string> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  /// Waits until threads have polled this often.
  void expect_polls(int polls) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return polls_ >= polls; }));
  }
  /// Waits until this many allreduces have been announced.
  void expect_announced(int announcements) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, kPatience, [&] { return announcements_ >= announcements; }));
  }
  [[nodiscard]] int announcements() const {
    const std::lock_guard lock(mutex_);
    return announcements_;
  }
  [[nodiscard]] bool was_abandoned() const {
    const std::lock_guard lock(mutex_);
    return abandoned_;
  }
  [[nodiscard]] std::size_t pending() const {
    const std::lock_guard lock(mutex_);
    return pending_;
  }

  // Called by the backend.
  void called(std::string what, bool is_async) {
    const std::lock_guard lock(mutex_);
    if (!is_async && pending_ > 0) what += " with others pending";
    calls_.push_back(std::move(what));
    if (is_async) ++pending_;
    changed_.notify_all();
  }
  bool try_complete() {
    const std::lock_guard lock(mutex_);
    ++polls_;
    changed_.notify_all();
    if (aborted_) {
      pending_ = 0;
      throw Error(Errc::aborted, "aborted");
    }
    if (fails_) {
      pending_ = 0;
      throw Error(Errc::internal, "the device has died");
    }
    if (allowed_ == 0) return false;
    --allowed_;
    --pending_;
    return true;
  }
  void announced() {
    const std::lock_guard lock(mutex_);
    ++announcements_;
    changed_.notify_all();
  }
  void abandoned() {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> calls_;
  std::size_t pending_ = 0;
  int allowed_ = 0;
  int polls_ = 0;
  int announcements_ = 0;
  bool abandoned_ = false;
  bool fails_ = false;
  bool gives_events_ = false;
  bool aborted_ = false;
};

class LateCollective final : public AsyncCollective {
 public:
  LateCollective(FakeDevice& device, std::function<void()> work)
      : device_(device), work_(std::move(work)), end_(device.event()) {}
  [[nodiscard]] std::shared_ptr<void> end() const override { return end_; }
  bool try_complete() override {
    if (!device_.try_complete()) return false;
    work_();
    return true;
  }

 private:
  FakeDevice& device_;
  std::function<void()> work_;
  std::shared_ptr<void> end_;
};

/// A backend for allreduces of one rank, or of several ranks with equal values. Results appear when
/// the collective completes.
class LateBackend final : public Backend {
 public:
  LateBackend(FakeDevice& device, int ranks) : device_(device), ranks_(ranks) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "late"; }
  [[nodiscard]] bool supports(OpKind kind, Device, DType dtype, ReduceOp) const noexcept override {
    return kind == OpKind::barrier || (kind == OpKind::allreduce && dtype == DType::f32);
  }
  void announce(const AllreduceCall&, std::uint64_t) override { device_.announced(); }
  void abandon() noexcept override { device_.abandoned(); }
  void allow_async() noexcept override { async_ = true; }
  [[nodiscard]] std::unique_ptr<AsyncCollective> take_async() noexcept override {
    return std::move(collective_);
  }
  void allreduce(const AllreduceCall& call, Deadline) override {
    device_.called("allreduce of " + std::to_string(call.tensors.size()), async_);
    async_ = false;
    std::vector<TensorSlice> tensors(call.tensors.begin(), call.tensors.end());
    collective_ = std::make_unique<LateCollective>(device_, [this, tensors] {
      for (const TensorSlice& tensor : tensors) {
        const auto* const in = reinterpret_cast<const float*>(tensor.input);
        auto* const out = reinterpret_cast<float*>(tensor.output);
        for (std::int64_t i = 0; i < tensor.count; ++i) out[i] = static_cast<float>(ranks_) * in[i];
      }
    });
  }
  void barrier(Deadline) override { device_.called("barrier", false); }
  void allgather(const AllgatherCall&, Deadline) override {}
  void broadcast(const BroadcastCall&, Deadline) override {}
  void reducescatter(const ReducescatterCall&, Deadline) override {}
  void alltoall(const AlltoallCall&, Deadline) override {}
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int>, Deadline) override {
    device_.called("subset", false);
    return std::make_unique<LateBackend>(device_, 1);
  }
  void abort() noexcept override { device_.abort(); }

 private:
  FakeDevice& device_;
  int ranks_;
  bool async_ = false;
  std::unique_ptr<AsyncCollective> collective_;
};

/// A second backend of the same device, for the other operations. Its calls are complete when they
/// return.
class BesideBackend final : public Backend {
 public:
  explicit BesideBackend(FakeDevice& device) : device_(device) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "beside"; }
  [[nodiscard]] bool supports(OpKind kind, Device, DType dtype, ReduceOp) const noexcept override {
    return kind == OpKind::allreduce && dtype == DType::i32;
  }
  void allreduce(const AllreduceCall&, Deadline) override { device_.called("beside", false); }
  void barrier(Deadline) override {}
  void allgather(const AllgatherCall&, Deadline) override {}
  void broadcast(const BroadcastCall&, Deadline) override {}
  void reducescatter(const ReducescatterCall&, Deadline) override {}
  void alltoall(const AlltoallCall&, Deadline) override {}
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int>, Deadline) override {
    return std::make_unique<BesideBackend>(device_);
  }
  void abort() noexcept override {}

 private:
  FakeDevice& device_;
};

using Body = std::function<void(Context&, FakeDevice&)>;

/// Runs ranks as threads, each with its own device and without fusion.
void run(int size, const Body& body) {
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(size, [&](int rank) {
    Config config = test::thread_config(rank, size);
    config.fusion_threshold = 0;
    config.freeze_after = 2;
    FakeDevice device;
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<LateBackend>(device, size));
    backends.push_back(std::make_unique<BesideBackend>(device));
    auto session = std::make_unique<Session>(config, store);
    auto fence = make_host_fence(*session);
    Context context(std::move(session), std::move(backends), std::move(fence));
    body(context, device);
  });
}

Work barrier_of(Context& context) {
  Submission submission;
  submission.request.kind = OpKind::barrier;
  return context.submit(std::move(submission));
}

Work sum(Context& context, const std::string& name, std::vector<float>& data) {
  return allreduce_async(data.data(), data.data(), std::ssize(data), DType::f32,
                         {.name = name, .op = ReduceOp::sum, .context = &context});
}

Work beside(Context& context, const std::string& name, std::vector<int>& data, Device device) {
  Submission submission;
  submission.request.name = name;
  submission.request.dtype = DType::i32;
  submission.request.device = device;
  submission.request.shape = {std::ssize(data)};
  submission.input = submission.output = data.data();
  return context.submit(std::move(submission));
}

/// Runs the same step 20 times, by when its schedule is frozen. All ranks run equally many, because
/// they learn of the freeze at different times.
void freeze(Context& context, FakeDevice& device, const std::function<void()>& step) {
  device.complete_all();
  for (int i = 0; i < 20; ++i) step();
  EXPECT_GT(context.stats().freezes, 0U);
}

TEST(AsyncCollective, TheNextBeginsWhileOneIsPendingAndNoneIsDoneBeforeItIsComplete) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    std::vector<float> b(4, 2.0F);
    const Work first = sum(context, "a", a);
    const Work second = sum(context, "b", b);
    device.expect_calls(2);
    EXPECT_FALSE(first.done());
    EXPECT_FALSE(second.done());
    device.complete(1);
    first.wait();
    EXPECT_FALSE(second.done());
    device.complete(1);
    second.wait();
    EXPECT_THAT(a, Each(1.0F));
    EXPECT_EQ(context.stats().completed, 2U);
    context.shutdown();
  });
}

TEST(AsyncCollective, ANameIsPendingUntilItIsComplete) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    const Work work = sum(context, "a", a);
    device.expect_calls(1);
    EXPECT_EQ(test::error_of([&] { sum(context, "a", a); }).code(), Errc::duplicate_name);
    device.complete(1);
    work.wait();
    device.complete(1);
    sum(context, "a", a).wait();
    context.shutdown();
  });
}

TEST(AsyncCollective, ALaunchedOneHasAnEventAndItsNameIsFree) {
  run(1, [](Context& context, FakeDevice& device) {
    device.give_events();
    std::vector<float> a(3, 1.0F);
    const Work first = sum(context, "a", a);
    EXPECT_NE(first.wait_launched(), nullptr);
    EXPECT_FALSE(first.done());
    const Work second = sum(context, "a", a);
    EXPECT_NE(second.wait_launched(), nullptr);
    device.complete(1);
    first.wait();
    EXPECT_EQ(first.wait_launched(), nullptr) << "the result is in place";
    EXPECT_FALSE(second.done());
    device.complete(1);
    second.wait();
    context.shutdown();
  });
}

TEST(AsyncCollective, StepsAreLaunchedAheadOfTheDevice) {
  constexpr int kSteps = 5;
  run(2, [](Context& context, FakeDevice& device) {
    device.give_events();
    std::vector<float> a(3, 1.0F);
    std::vector<float> b(3, 1.0F);
    std::vector<Work> works;
    const auto step = [&] {
      works = {sum(context, "a", a), sum(context, "b", b)};
      for (const Work& work : works) EXPECT_FALSE(work.wait_launched() == nullptr && !work.done());
    };
    freeze(context, device, step);
    for (const Work& work : works) work.wait();
    device.complete_no_more();
    for (int i = 0; i < kSteps; ++i) step();
    EXPECT_EQ(device.pending(), 2U * kSteps);
    EXPECT_FALSE(works.back().done());
    device.complete_all();
    for (const Work& work : works) work.wait();
    context.shutdown();
  });
}

TEST(AsyncCollective, ALaunchedOneWithAConversionAtTheEndIsWaitedFor) {
  run(1, [](Context& context, FakeDevice& device) {
    device.give_events();
    std::vector<float> a(3, 1.0F);
    bool converted = false;
    Submission submission;
    submission.request.name = "a";
    submission.request.shape = {3};
    submission.input = submission.output = a.data();
    submission.finish = [&] { converted = true; };
    const Work work = context.submit(std::move(submission));
    device.expect_calls(1);
    EXPECT_EQ(test::error_of([&] { sum(context, "a", a); }).code(), Errc::duplicate_name);
    device.complete(1);
    EXPECT_EQ(work.wait_launched(), nullptr);
    EXPECT_TRUE(converted);
    context.shutdown();
  });
}

TEST(AsyncCollective, LaunchedOnesFailWithTheContextAlsoWhenOthersHaveTheirNames) {
  run(1, [](Context& context, FakeDevice& device) {
    device.give_events();
    std::vector<float> a(3, 1.0F);
    const Work first = sum(context, "a", a);
    EXPECT_NE(first.wait_launched(), nullptr);
    const Work second = sum(context, "a", a);
    EXPECT_NE(second.wait_launched(), nullptr);
    device.fail();
    for (const Work& work : {first, second}) {
      const Error error = test::error_of([&] { work.wait(); });
      EXPECT_THAT(error.what(), testing::HasSubstr("the device has died"));
      EXPECT_NE(work.error(), nullptr);
      EXPECT_EQ(test::error_of([&] { static_cast<void>(work.wait_launched()); }).code(),
                Errc::internal);
    }
    EXPECT_EQ(context.stats().failed, 2U);
  });
}

TEST(AsyncCollective, ABarrierAndANewProcessSetComeAfterAllThatWasPending) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    const Work work = sum(context, "a", a);
    device.expect_calls(1);
    const Work barrier = barrier_of(context);
    device.complete(1);
    barrier.wait();
    EXPECT_TRUE(work.done());
    const Work other = sum(context, "b", a);
    device.expect_calls(3);
    device.complete(1);
    static_cast<void>(context.add_process_set({0}));
    EXPECT_TRUE(other.done());
    EXPECT_THAT(device.calls(),
                ElementsAre("allreduce of 1", "barrier", "allreduce of 1", "subset"));
    context.shutdown();
  });
}

TEST(AsyncCollective, AnotherBackendOfADeviceComesAfterAllThatWasPending) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    std::vector<int> b(3, 1);
    const Work first = sum(context, "a", a);
    device.expect_calls(1);
    beside(context, "of the host", b, {}).wait();  // the device is not involved
    const Work other = beside(context, "of the device", b, {Device::Kind::cuda, 0});
    device.expect_polls(100);
    device.complete(1);
    other.wait();
    EXPECT_TRUE(first.done());
    EXPECT_THAT(device.calls(),
                ElementsAre("allreduce of 1", "beside with others pending", "beside"));
    context.shutdown();
  });
}

// Polling takes a lock of the device's driver, which threads need to launch kernels.
TEST(AsyncCollective, WhereNobodyWaitsThereIsAPauseBetweenTwoPolls) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    const Work work = sum(context, "a", a);
    device.expect_polls(400);  // at first there is no pause
    const auto began = Clock::now();
    device.expect_polls(500);
    EXPECT_GE(Clock::now() - began, std::chrono::microseconds(99 * 50));
    // A submission ends the pause.
    const Work next = sum(context, "b", a);
    device.expect_calls(2);
    device.complete(2);
    next.wait();
    context.shutdown();
  });
}

TEST(AsyncCollective, AFrozenScheduleGoesOnWithSeveralPending) {
  run(2, [](Context& context, FakeDevice& device) {
    std::vector<std::vector<float>> data(6, std::vector<float>(5));
    std::vector<Work> works;
    const auto begin = [&](float value) {
      for (std::size_t i = 0; i < data.size(); ++i) {
        std::fill(data[i].begin(), data[i].end(), value + static_cast<float>(i));
        works.push_back(sum(context, "g" + std::to_string(i), data[i]));
      }
    };
    const auto finish = [&](float value) {
      for (const Work& work : works) work.wait();
      works.clear();
      for (std::size_t i = 0; i < data.size(); ++i) {
        EXPECT_THAT(data[i], Each(2 * (value + static_cast<float>(i))));
      }
    };
    for (int step = 0; step < 200; ++step) {
      device.complete_all();
      begin(static_cast<float>(step));
      finish(static_cast<float>(step));
    }
    EXPECT_GT(context.stats().freezes, 0U);
    EXPECT_GT(context.stats().schedule_hits, 0U);
    context.shutdown();
  });
}

// A waiting thread polls pending collectives, even while another thread waits for a rank that does
// not come.
TEST(AsyncCollective, APendingOneCompletesWhileTheNextTurnWaitsForOthers) {
  std::atomic<bool> first_is_done = false;
  run(2, [&](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    std::vector<float> b(3, 1.0F);
    freeze(context, device, [&] {
      const Work first = sum(context, "a", a);
      const Work second = sum(context, "b", b);
      first.wait();
      second.wait();
    });
    const std::uint64_t thaws = context.stats().thaws;
    const Work first = sum(context, "a", a);
    if (context.rank() == 0) {
      const Work second = sum(context, "b", b);  // its executor waits for the other rank
      first.wait();
      EXPECT_EQ(context.stats().thaws, thaws) << "it had to be given up first";
      first_is_done = true;
      first_is_done.notify_all();
      second.wait();
    } else {
      first_is_done.wait(false);  // comes to the second only when the other has the first
      sum(context, "b", b).wait();
      first.wait();
    }
    context.shutdown();
  });
}

TEST(AsyncCollective, WhenOneOfTheMostIsCompleteTheNextBeginsAlsoWhileSomebodyWaits) {
  constexpr std::size_t kMost = 64;
  run(1, [&](Context& context, FakeDevice& device) {
    std::vector<std::vector<float>> data(kMost + 2, std::vector<float>(3));
    const auto begin = [&] {
      std::vector<Work> works;
      for (std::size_t i = 0; i < data.size(); ++i) {
        works.push_back(sum(context, "g" + std::to_string(i), data[i]));
      }
      return works;
    };
    freeze(context, device, [&] {
      for (const Work& work : begin()) work.wait();
    });
    device.complete_no_more();
    const std::size_t before = device.calls().size();
    const std::vector<Work> works = begin();
    std::thread waits([&] { works.back().wait(); });
    device.expect_calls(before + kMost);
    device.complete(1);
    device.expect_calls(before + kMost + 1);
    EXPECT_EQ(device.pending(), kMost);
    device.complete_all();
    waits.join();
    context.shutdown();
  });
}

TEST(AsyncCollective, OneThatFailsEndsTheContextAndLeavesNothingPending) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    std::vector<float> b(3, 1.0F);
    const Work first = sum(context, "a", a);
    const Work second = sum(context, "b", b);
    device.expect_calls(2);
    device.fail();
    for (const Work& work : {first, second}) {
      const Error error = test::error_of([&] { work.wait(); });
      EXPECT_THAT(error.what(), testing::HasSubstr("the device has died"));
    }
    EXPECT_EQ(device.pending(), 0U);
    EXPECT_EQ(context.stats().failed, 2U);
  });
}

// Until it is abandoned, late ranks may write to its tensors.
TEST(AsyncCollective, WhatWasAnnouncedIsAbandonedBeforeItsWorkFails) {
  std::latch announced(1);
  run(2, [&](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    device.complete_all();
    for (int step = 0; step < 10; ++step) sum(context, "a", a).wait();
    ASSERT_EQ(context.stats().freezes, 1U);
    if (context.rank() == 1) {
      announced.wait();
      context.disconnect();
      return;
    }
    const int before = device.announcements();
    const Work work = sum(context, "a", a);
    device.expect_announced(before + 1);
    EXPECT_FALSE(device.was_abandoned());
    announced.count_down();
    EXPECT_EQ(test::error_of([&] { work.wait(); }).code(), Errc::peer_lost);
    EXPECT_TRUE(device.was_abandoned());
  });
}

TEST(AsyncCollective, WorksOfAContextThatIsLeftAreDoneOnlyWhenNothingIsPending) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    const Work work = sum(context, "a", a);
    device.expect_calls(1);
    context.disconnect();
    EXPECT_EQ(device.pending(), 0U);
    EXPECT_EQ(test::error_of([&] { work.wait(); }).code(), Errc::shut_down);
  });
}

TEST(AsyncCollective, OneThatFailsWhenAllHaveShutDownIsReported) {
  std::latch over(1);
  run(2, [&](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    const Work work = sum(context, "a", a);
    device.expect_calls(1);
    if (context.rank() == 1) {
      device.complete(1);
      context.shutdown();
      over.count_down();
      return;
    }
    std::thread fails([&] {
      over.wait();
      device.fail();
    });
    for (const auto& call :
         {std::function([&] { context.shutdown(); }), std::function([&] { work.wait(); })}) {
      EXPECT_THAT(test::error_of(call).what(), testing::HasSubstr("the device has died"));
    }
    fails.join();
  });
}

TEST(AsyncCollective, AShutdownLetsThemComplete) {
  run(2, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    const Work work = sum(context, "a", a);
    device.expect_calls(1);
    device.complete(1);
    context.shutdown();
    EXPECT_TRUE(work.done());
    EXPECT_THAT(a, Each(2.0F));
  });
}

}  // namespace
}  // namespace hvd
