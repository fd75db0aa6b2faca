// Tests results for which a device has no memory, in whole contexts with ranks as threads.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>

#include <hvd/core/context.hpp>
#include <hvd/core/internal/backend.hpp>
#include <hvd/core/internal/ready_fence.hpp>
#include <hvd/core/internal/session.hpp>

#include "idle_backend.hpp"

namespace hvd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kRanks = 2;
constexpr int kPoor = 1;  // the rank without memory

/// Counts the calls that would reach a device.
struct Calls {
  std::atomic<int> made{0};
};

/// A device's engine, which starts an operation when all ranks have come to it, and waits for them
/// until then.
class Gathering final : public Backend {
 public:
  Gathering(Calls& calls, bool alone) : calls_(calls), alone_(alone) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "gathering"; }
  [[nodiscard]] bool supports(OpKind, Device, DType, ReduceOp) const noexcept override {
    return true;
  }
  void allreduce(const AllreduceCall&, Deadline deadline) override { come(deadline); }
  void allgather(const AllgatherCall&, Deadline deadline) override { come(deadline); }
  void broadcast(const BroadcastCall&, Deadline deadline) override { come(deadline); }
  void reducescatter(const ReducescatterCall&, Deadline deadline) override { come(deadline); }
  void alltoall(const AlltoallCall&, Deadline deadline) override { come(deadline); }
  void barrier(Deadline) override {}
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int>, Deadline) override {
    return nullptr;
  }
  void abort() noexcept override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

 private:
  void come(Deadline deadline) {
    ++calls_.made;
    if (alone_) return;
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline, [&] { return aborted_; })) {
      throw Error(Errc::timeout, "nobody came");
    }
    throw Error(Errc::aborted, "aborted");
  }

  Calls& calls_;
  const bool alone_;  ///< the only rank
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
};

Submission gathered(OpKind kind, Device device, const std::vector<float>& input,
                    std::function<void*(const Shape&)> allocate) {
  Submission submission;
  submission.request.kind = kind;
  submission.request.name = "grown";
  submission.request.device = device;
  submission.request.shape = {std::ssize(input)};
  if (kind == OpKind::alltoall) submission.request.splits = {1, 1};
  submission.input = input.data();
  submission.allocate = std::move(allocate);
  return submission;
}

void* no_memory(const Shape&) {
  throw std::runtime_error("CUDA out of memory\nException raised from malloc at …");
}

/// The queued work of a stream, which may use the result's memory too.
class Stream final : public DeviceEvent {
 public:
  explicit Stream(const std::vector<float>& result) : result_(result) {}
  void wait(Deadline) override { EXPECT_FALSE(result_.empty()) << "waits for less than all of it"; }

 private:
  const std::vector<float>& result_;
};

class DeviceResult : public testing::TestWithParam<OpKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, DeviceResult,
                         testing::Values(OpKind::allgather, OpKind::reducescatter,
                                         OpKind::alltoall));

TEST_P(DeviceResult, WithoutMemoryForItNothingIsStartedThereAndAllRanksHearOfIt) {
  const std::shared_ptr<Store> store = make_hash_store();
  Calls poor;
  Calls rich;
  test::expect_threads(kRanks, [&](int rank) {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<Gathering>(rank == kPoor ? poor : rich, false));
    Context context(std::make_unique<Session>(test::thread_config(rank, kRanks), store),
                    std::move(backends));
    const std::vector<float> input(2, 1.0F);
    std::vector<float> output(4);
    const Work work = context.submit(
        gathered(GetParam(), {Device::Kind::cuda, rank}, input, [&](const Shape& shape) -> void* {
          return rank == kPoor ? no_memory(shape) : output.data();
        }));
    const Error error = test::error_of([&] { work.wait(); });
    EXPECT_EQ(error.code(), Errc::resource);
    EXPECT_EQ(error.fault().rank, kPoor);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'grown'"), HasSubstr("CUDA out of memory"),
                                    Not(HasSubstr("malloc"))));
  });
  EXPECT_EQ(poor.made, 0);
}

/// A backend that lacks a resource of the system, and does not say on which rank it runs.
class Lacking final : public test::IdleBackend {
 public:
  void allgather(const AllgatherCall&, Deadline) override {
    throw Error(Errc::resource, "too many open files");
  }
};

TEST(LackOfAResource, NamesTheRankThatLacksIt) {
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(kRanks, [&](int rank) {
    Calls calls;
    std::vector<std::unique_ptr<Backend>> backends;
    if (rank == kPoor) {
      backends.push_back(std::make_unique<Lacking>());
    } else {
      backends.push_back(std::make_unique<Gathering>(calls, false));
    }
    Context context(std::make_unique<Session>(test::thread_config(rank, kRanks), store),
                    std::move(backends));
    const std::vector<float> input(2);
    std::vector<float> output(4);
    const Work work = context.submit(
        gathered(OpKind::allgather, {}, input, [&](const Shape&) { return output.data(); }));
    const Error error = test::error_of([&] { work.wait(); });
    EXPECT_EQ(error.code(), Errc::resource);
    EXPECT_EQ(error.fault().rank, kPoor) << error.what();
  });
}

TEST_P(DeviceResult, HasItsMemoryBeforeTheDataIsWaitedFor) {
  const std::shared_ptr<Store> store = make_hash_store();
  Calls calls;
  test::expect_threads(kRanks, [&](int rank) {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<Gathering>(calls, true));
    Context context(std::make_unique<Session>(test::thread_config(rank, kRanks), store),
                    std::move(backends));
    const std::vector<float> input(2, 1.0F);
    std::vector<float> output;
    Submission submission =
        gathered(GetParam(), {Device::Kind::cuda, rank}, input, [&](const Shape& shape) -> void* {
          output.resize(static_cast<std::size_t>(shape.front()));
          return output.data();
        });
    submission.ready = std::make_shared<Stream>(output);
    context.submit(std::move(submission)).wait();
    EXPECT_EQ(output.size(), GetParam() == OpKind::allgather       ? 4U
                             : GetParam() == OpKind::reducescatter ? 1U
                                                                   : 2U);
    context.shutdown();
  });
}

/// On the host the rank without memory takes part, and only its own operation fails.
TEST_P(DeviceResult, OfTheHostOneWithoutMemoryStrikesThatRankAlone) {
  const std::shared_ptr<Store> store = make_hash_store();
  Calls calls;
  test::expect_threads(kRanks, [&](int rank) {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<Gathering>(calls, true));
    Context context(std::make_unique<Session>(test::thread_config(rank, kRanks), store),
                    std::move(backends));
    const std::vector<float> input(2, 1.0F);
    std::vector<float> output(4);
    const Work work =
        context.submit(gathered(GetParam(), {}, input, [&](const Shape& shape) -> void* {
          return rank == kPoor ? no_memory(shape) : output.data();
        }));
    if (rank == kPoor) {
      EXPECT_THROW(work.wait(), std::runtime_error);
    } else {
      work.wait();
    }
    context.shutdown();
  });
  EXPECT_EQ(calls.made, kRanks);
}

class CountedEvent final : public DeviceEvent {
 public:
  void wait(Deadline) override { ++waits; }
  std::atomic<int> waits{0};
};

TEST(DeviceEvents, OneThatNeighboursShareIsWaitedForOnce) {
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(kRanks, [&](int rank) {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<test::IdleBackend>());
    Context context(std::make_unique<Session>(test::thread_config(rank, kRanks), store),
                    std::move(backends));
    std::vector<float> data(2, 1.0F);
    const auto ready = std::make_shared<CountedEvent>();
    std::vector<Submission> submissions;
    for (const char* name : {"a", "b", "c"}) {
      submissions.push_back(gathered(OpKind::allreduce, {Device::Kind::cuda, rank}, data, nullptr));
      submissions.back().request.name = name;
      submissions.back().output = data.data();
      submissions.back().ready = ready;
    }
    for (const Work& work : context.submit_group(std::move(submissions))) work.wait();
    EXPECT_EQ(ready->waits, 1);
    context.shutdown();
  });
}

/// A stream of the program that stands still once the collective has run.
class StillStream final : public DeviceEvent {
 public:
  void stop() { is_still_ = true; }
  void wait(Deadline deadline) override {
    if (!is_still_) return;
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [] { return false; });
    throw Error(Errc::timeout, "the stream stands still");
  }

 private:
  std::atomic<bool> is_still_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// Runs an allreduce whose result a stream that stands still has to finish on one rank, and returns
/// the error of that rank. Its other rank calls `after_own` when its own operation is done.
Error finish_on_a_still_stream(std::chrono::milliseconds timeout,
                               const std::function<void(Context&)>& after_own) {
  const std::shared_ptr<Store> store = make_hash_store();
  Calls calls;
  std::optional<Error> error;
  test::expect_threads(kRanks, [&](int rank) {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<Gathering>(calls, true));
    Config config = test::thread_config(rank, kRanks);
    config.collective_timeout = timeout;
    Context context(std::make_unique<Session>(config, store), std::move(backends));
    std::vector<float> data(2, 1.0F);
    Submission submission = gathered(OpKind::allreduce, {Device::Kind::cuda, rank}, data, nullptr);
    submission.output = data.data();
    if (rank != kPoor) {
      context.submit(std::move(submission)).wait();
      after_own(context);
      static_cast<void>(test::error_of([&] { static_cast<void>(context.join()); }));
      return;
    }
    const auto stream = std::make_shared<StillStream>();
    submission.ready = stream;
    submission.finish = [&] { stream->stop(); };
    const Work work = context.submit(std::move(submission));
    error = test::error_of([&] { work.wait(); });
    EXPECT_EQ(test::error_of([&] { static_cast<void>(context.join()); }).code(), error->code());
  });
  return *error;
}

TEST(DeviceResultFinish, FailsTheJobAtTheDeadline) {
  const Error error = finish_on_a_still_stream(std::chrono::milliseconds(100), [](Context&) {});
  EXPECT_EQ(error.code(), Errc::timeout);
  EXPECT_THAT(error.what(), HasSubstr("the stream stands still"));
}

TEST(DeviceResultFinish, EndsWhenTheJobIsAborted) {
  const Error error = finish_on_a_still_stream(std::chrono::hours(1),
                                               [](Context& context) { context.abort("enough"); });
  EXPECT_EQ(error.code(), Errc::aborted);
  EXPECT_THAT(error.what(), HasSubstr("enough"));
}

}  // namespace
}  // namespace hvd
