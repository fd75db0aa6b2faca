// A backend whose calls go on after they have returned, as on a device, in whole contexts.
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>

#include <hvd/hvd.hpp>
#include <hvd/ops/arrivals.hpp>

namespace hvd {
namespace {

using std::chrono::seconds;
using testing::Each;
using testing::ElementsAre;

constexpr seconds kPatience{30};

/// What a device does, on the test's command.
class FakeDevice {
 public:
  /// Lets this many more flights land.
  void land(int flights) {
    const std::lock_guard lock(mutex_);
    allowed_ += flights;
  }
  void land_all() { land(1'000'000); }
  void land_no_more() {
    const std::lock_guard lock(mutex_);
    allowed_ = 0;
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
  /// Waits until a thread has looked this often whether a flight has landed.
  void expect_looks(int looks) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return looks_ >= looks; }));
  }
  [[nodiscard]] std::size_t in_the_air() const {
    const std::lock_guard lock(mutex_);
    return flying_;
  }

  // The backend's.
  void called(std::string what, bool flies) {
    const std::lock_guard lock(mutex_);
    if (!flies && flying_ > 0) what += " with flights in the air";
    calls_.push_back(std::move(what));
    if (flies) ++flying_;
    changed_.notify_all();
  }
  bool landed() {
    const std::lock_guard lock(mutex_);
    ++looks_;
    changed_.notify_all();
    if (aborted_) {
      flying_ = 0;
      throw Error(Errc::aborted, "aborted");
    }
    if (fails_) {
      flying_ = 0;
      throw Error(Errc::internal, "the device has died");
    }
    if (allowed_ == 0) return false;
    --allowed_;
    --flying_;
    return true;
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> calls_;
  std::size_t flying_ = 0;
  int allowed_ = 0;
  int looks_ = 0;
  bool fails_ = false;
  bool aborted_ = false;
};

class LateFlight final : public Flight {
 public:
  LateFlight(FakeDevice& device, std::function<void()> work)
      : device_(device), work_(std::move(work)) {}
  bool landed() override {
    if (!device_.landed()) return false;
    work_();
    return true;
  }

 private:
  FakeDevice& device_;
  std::function<void()> work_;
};

/// Allreduces of one rank, or of several that all have the same values, which take effect as they
/// land.
class LateBackend final : public Backend {
 public:
  LateBackend(FakeDevice& device, int ranks) : device_(device), ranks_(ranks) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "late"; }
  [[nodiscard]] bool supports(OpKind kind, Device, DType dtype, ReduceOp) const noexcept override {
    return kind == OpKind::barrier || (kind == OpKind::allreduce && dtype == DType::f32);
  }
  void let_fly() noexcept override { flies_ = true; }
  [[nodiscard]] std::unique_ptr<Flight> take_flight() noexcept override {
    return std::move(flight_);
  }
  void allreduce(const AllreduceCall& call, Deadline) override {
    device_.called("allreduce of " + std::to_string(call.tensors.size()), flies_);
    flies_ = false;
    std::vector<TensorSlice> tensors(call.tensors.begin(), call.tensors.end());
    flight_ = std::make_unique<LateFlight>(device_, [this, tensors] {
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
  bool flies_ = false;
  std::unique_ptr<Flight> flight_;
};

/// What the other one does not, of the same device; over when it returns.
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

/// Ranks as threads, each with a device of its own. Nothing is fused.
void run(int size, const Body& body) {
  const std::shared_ptr<Store> store = make_hash_store();
  auto arrivals = make_in_process_arrivals(size);
  test::expect_threads(size, [&](int rank) {
    Config config = test::thread_config(rank, size);
    config.fusion_threshold = 0;
    config.freeze_after = 2;
    FakeDevice device;
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<LateBackend>(device, size));
    backends.push_back(std::make_unique<BesideBackend>(device));
    Context context(std::make_unique<Session>(config, store), std::move(backends),
                    std::move(arrivals[static_cast<std::size_t>(rank)]));
    body(context, device);
  });
}

Work barrier_of(Context& context) {
  Submission submission;
  submission.request.kind = OpKind::barrier;
  return context.submit(std::move(submission));
}

Work sum(Context& context, const std::string& name, std::vector<float>& data) {
  return allreduce_async(context, data.data(), data.data(), std::ssize(data), DType::f32,
                         {name, ReduceOp::sum, 1.0, 1.0});
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

/// Until the same step has been agreed on often enough.
void freeze(Context& context, FakeDevice& device, const std::function<void()>& step) {
  const auto deadline = Clock::now() + kPatience;
  device.land_all();
  while (context.stats().freezes == 0 && Clock::now() < deadline) step();
  EXPECT_GT(context.stats().freezes, 0U);
}

TEST(Flight, TheNextBeginsWhileOneIsInTheAirAndNoneIsDoneBeforeItHasLanded) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    std::vector<float> b(4, 2.0F);
    const Work first = sum(context, "a", a);
    const Work second = sum(context, "b", b);
    device.expect_calls(2);
    EXPECT_FALSE(first.done());
    EXPECT_FALSE(second.done());
    device.land(1);
    first.wait();
    EXPECT_FALSE(second.done());
    device.land(1);
    second.wait();
    EXPECT_THAT(a, Each(1.0F));
    EXPECT_EQ(context.stats().completed, 2U);
    context.shutdown();
  });
}

TEST(Flight, ANameIsPendingUntilItHasLanded) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    const Work work = sum(context, "a", a);
    device.expect_calls(1);
    EXPECT_EQ(test::error_of([&] { sum(context, "a", a); }).code(), Errc::duplicate_name);
    device.land(1);
    work.wait();
    device.land(1);
    sum(context, "a", a).wait();
    context.shutdown();
  });
}

TEST(Flight, ABarrierAndANewProcessSetComeAfterAllThatWasInTheAir) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    const Work work = sum(context, "a", a);
    device.expect_calls(1);
    const Work barrier = barrier_of(context);
    device.land(1);
    barrier.wait();
    EXPECT_TRUE(work.done());
    const Work other = sum(context, "b", a);
    device.expect_calls(3);
    device.land(1);
    static_cast<void>(context.add_process_set({0}));
    EXPECT_TRUE(other.done());
    EXPECT_THAT(device.calls(),
                ElementsAre("allreduce of 1", "barrier", "allreduce of 1", "subset"));
    context.shutdown();
  });
}

TEST(Flight, AnotherBackendOfADeviceComesAfterAllThatWasInTheAir) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    std::vector<int> b(3, 1);
    const Work first = sum(context, "a", a);
    device.expect_calls(1);
    beside(context, "of the host", b, {}).wait();  // the device has nothing to do with it
    const Work other = beside(context, "of the device", b, {Device::Kind::cuda, 0});
    device.expect_looks(100);
    device.land(1);
    other.wait();
    EXPECT_TRUE(first.done());
    EXPECT_THAT(device.calls(),
                ElementsAre("allreduce of 1", "beside with flights in the air", "beside"));
    context.shutdown();
  });
}

// A look costs the device's driver too, which the threads that launch kernels need.
TEST(Flight, WhereNobodyWaitsThereIsARestBetweenTwoLooks) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    const Work work = sum(context, "a", a);
    device.expect_looks(400);  // in the first moments there is none
    const auto began = Clock::now();
    device.expect_looks(500);
    EXPECT_GE(Clock::now() - began, std::chrono::microseconds(99 * 50));
    // What comes meanwhile does not wait for the end of a rest.
    const Work next = sum(context, "b", a);
    device.expect_calls(2);
    device.land(2);
    next.wait();
    context.shutdown();
  });
}

TEST(Flight, AFrozenScheduleGoesOnWithSeveralInTheAir) {
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
      device.land_all();
      begin(static_cast<float>(step));
      finish(static_cast<float>(step));
    }
    EXPECT_GT(context.stats().freezes, 0U);
    EXPECT_GT(context.stats().schedule_hits, 0U);
    context.shutdown();
  });
}

// A thread that waits sees to what is in the air, also while another is held up by a rank that does
// not come.
TEST(Flight, WhatIsInTheAirLandsWhileTheNextTurnWaitsForOthers) {
  std::atomic<bool> landed = false;
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
      const Work second = sum(context, "b", b);  // its executor meets the other rank for it
      first.wait();
      EXPECT_EQ(context.stats().thaws, thaws) << "it had to be given up first";
      landed = true;
      landed.notify_all();
      second.wait();
    } else {
      landed.wait(false);  // comes to the second only when the other has the first
      sum(context, "b", b).wait();
      first.wait();
    }
    context.shutdown();
  });
}

TEST(Flight, WhenOneOfTheMostHasLandedTheNextTakesOffAlsoWhileSomebodyWaits) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<std::vector<float>> data(6, std::vector<float>(3));
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
    device.land_no_more();
    const std::size_t before = device.calls().size();
    const std::vector<Work> works = begin();
    std::thread waits([&] { works.back().wait(); });
    device.expect_calls(before + 4);
    device.land(1);
    device.expect_calls(before + 5);
    EXPECT_EQ(device.in_the_air(), 4U);
    device.land_all();
    waits.join();
    context.shutdown();
  });
}

TEST(Flight, OneThatFailsEndsTheContextAndLeavesNothingInTheAir) {
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
    EXPECT_EQ(device.in_the_air(), 0U);
    EXPECT_EQ(context.stats().failed, 2U);
  });
}

TEST(Flight, WorksOfAContextThatIsLeftAreDoneOnlyWhenNothingIsInTheAir) {
  run(1, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    const Work work = sum(context, "a", a);
    device.expect_calls(1);
    context.disconnect();
    EXPECT_EQ(device.in_the_air(), 0U);
    EXPECT_EQ(test::error_of([&] { work.wait(); }).code(), Errc::shut_down);
  });
}

TEST(Flight, AShutdownLetsThemLand) {
  run(2, [](Context& context, FakeDevice& device) {
    std::vector<float> a(3, 1.0F);
    const Work work = sum(context, "a", a);
    device.expect_calls(1);
    device.land(1);
    context.shutdown();
    EXPECT_TRUE(work.done());
    EXPECT_THAT(a, Each(2.0F));
  });
}

}  // namespace
}  // namespace hvd
