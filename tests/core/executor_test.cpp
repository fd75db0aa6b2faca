#include "engine/executor.hpp"

#include <array>
#include <atomic>
#include <functional>
#include <new>
#include <optional>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>

#include "engine/observer.hpp"
#include "idle_backend.hpp"

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using testing::ElementsAre;

constexpr std::chrono::seconds kPatience{20};

class CountingListener final : public Executor::Listener {
 public:
  void turn_taken(const LocalBatch&, const SchedulePosition&, Clock::time_point) override {}
  void tensor_done(PendingTensor& tensor, std::exception_ptr error) override {
    tensor.work.complete(std::move(error));
  }
  void batch_done() override { ++batches; }
  void backend_failed(const Error& error) override { failures.push_back(error.code()); }
  void waited(Clock::time_point, Clock::time_point) override {}
  void nothing_runs() override {}
  void stopped() override {}

  // To be read after `join`. Two threads may count at a time: one runs a batch, the other polls.
  std::atomic<int> batches{0};
  std::vector<Errc> failures;
};

Request request_of(std::string name, std::int64_t count = 4) {
  Request request;
  request.name = std::move(name);
  request.shape = {count};
  return request;
}

std::shared_ptr<PendingTensor> tensor_of(Request request) {
  Submission submission;
  submission.request = std::move(request);
  submission.keep_alive = std::make_shared<int>(0);
  return std::make_shared<PendingTensor>(std::move(submission));
}

FrozenSchedule schedule_of(const Request& request) {
  FrozenSchedule schedule;
  schedule.batches.emplace_back().requests = {request};
  return schedule;
}

void add(TensorTable& table, const std::shared_ptr<PendingTensor>& tensor) {
  static_cast<void>(table.add({&tensor, 1}, 0));
}

// The loop thread may thaw the schedule before the executor thread takes the turn, which then finds
// none.
TEST(Executor, ATurnThatIsTakenAwayBeforeAnybodyTookItEndsNothing) {
  Observer observer(TimelineOptions{});
  CountingListener listener;
  TensorTable table(0, 1);
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(std::make_unique<test::IdleBackend>());
  Executor executor(std::make_unique<CollectiveRunner>(std::move(backends), 0, 1, observer),
                    nullptr, kPatience, table, listener);
  const Request request = request_of("a");
  const FrozenSchedule schedule = schedule_of(request);
  for (std::uint32_t epoch = 1; epoch <= 30'000; ++epoch) {
    static_cast<void>(table.freeze(schedule, epoch));
    const auto tensor = tensor_of(request);
    add(table, tensor);
    executor.turn_came();
    table.resume({table.stop()});
    if (table.find({0, "a"})) {
      table.remove(*tensor);
    } else {  // the executor has taken the turn
      ASSERT_TRUE(tensor->work.wait_until(Clock::now() + kPatience)) << "in epoch " << epoch;
    }
  }
  LocalBatch batch;  // the executor goes on
  batch.tensors.push_back(tensor_of(request));
  const auto last = batch.tensors.front();
  executor.run(std::move(batch));
  EXPECT_TRUE(last->work.wait_until(Clock::now() + kPatience));
  executor.stop();
  executor.join();
  EXPECT_TRUE(listener.failures.empty());
}

using Signal = std::counting_semaphore<>;

void await(Signal& signal) { ASSERT_TRUE(signal.try_acquire_for(kPatience)); }

/// Calls a function of the test in each collective, and counts.
class ScriptedBackend final : public test::IdleBackend {
 public:
  struct Script {
    /// Gets the number of elements, which tells batches apart (0: a barrier). Returns null when the
    /// collective is complete at once.
    std::function<std::unique_ptr<AsyncCollective>(std::int64_t count)> call;
    bool starts = false;
    int abandoned = 0;
    int retracted = 0;
  };

  explicit ScriptedBackend(Script& script) : script_(script) {}
  void allreduce(const AllreduceCall& call, Deadline) override {
    async_ = script_.call(call.tensors.front().count);
  }
  void barrier(Deadline) override { async_ = script_.call(0); }
  bool starts() const noexcept override { return script_.starts; }
  std::unique_ptr<AsyncCollective> take_async() noexcept override { return std::move(async_); }
  void abandon() noexcept override { ++script_.abandoned; }
  void retract() noexcept override { ++script_.retracted; }

 private:
  Script& script_;
  std::unique_ptr<AsyncCollective> async_;
};

/// A collective that is complete when the function says so.
class ScriptedCollective final : public AsyncCollective {
 public:
  explicit ScriptedCollective(std::function<bool()> poll) : poll_(std::move(poll)) {}
  bool try_complete() override { return poll_(); }

 private:
  std::function<bool()> poll_;
};

/// A fence that another rank never reaches.
class LonelyFence final : public ReadyFence {
 public:
  explicit LonelyFence(Signal& arrived) : arrived_(arrived) {}
  bool arrive_and_wait(std::uint64_t, std::uint64_t, std::span<const int>) override {
    arrived_.release();
    EXPECT_TRUE(over_.try_acquire_for(kPatience)) << "a thread is left at the fence";
    if (aborted_) throw Error(Errc::aborted, "aborted");
    return false;
  }
  void settle(std::span<const std::uint64_t>) override { over_.release(); }
  void abort() noexcept override {
    aborted_ = true;
    over_.release();
  }

 private:
  Signal& arrived_;
  Signal over_{0};
  std::atomic<bool> aborted_{false};
};

/// An executor of rank 0 with a scripted backend. The batches that run are noted in `ran` before
/// the test's own function is called.
class RunningExecutor : public testing::Test {
 protected:
  void start(std::function<std::unique_ptr<AsyncCollective>(std::int64_t)> call,
             std::unique_ptr<ReadyFence> fence = nullptr) {
    script.call = [this, call = std::move(call)](std::int64_t count) {
      ran.push_back(count);
      return call(count);
    };
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<ScriptedBackend>(script));
    executor.emplace(std::make_unique<CollectiveRunner>(std::move(backends), 0, 2, observer),
                     std::move(fence), kPatience, table, listener);
  }

  std::shared_ptr<PendingTensor> run(std::int64_t count, OpKind kind = OpKind::allreduce,
                                     Device device = {}) {
    Request request = request_of(std::to_string(count), count);
    request.kind = kind;
    request.device = device;
    const auto tensor = tensor_of(std::move(request));
    LocalBatch batch;
    batch.tensors = {tensor};
    run(std::move(batch));
    return tensor;
  }
  void run(LocalBatch batch) {
    batch.kind = batch.tensors.front()->submission.request.kind;
    for (const auto& tensor : batch.tensors) {
      add(table, tensor);
      table.mark_scheduled(*tensor);
    }
    executor->run(std::move(batch));
  }

  void take_turn(const Request& request) {
    static_cast<void>(table.freeze(schedule_of(request), 1));
    add(table, tensor_of(request));
    executor->turn_came();
  }

  static bool is_done(const std::shared_ptr<PendingTensor>& tensor) {
    return tensor->work.wait_until(Clock::now() + kPatience);
  }

  ScriptedBackend::Script script;
  std::vector<std::int64_t> ran;  // to be read after `join`
  Observer observer{TimelineOptions{}};
  CountingListener listener;
  TensorTable table{0, 2};
  std::optional<Executor> executor;  // destroyed first
};

TEST_F(RunningExecutor, RunsWhatIsQueuedInOrderBeforeADrainEndsIt) {
  Signal go_on{0};
  start([&](std::int64_t count) {
    if (count == 1) await(go_on);
    return nullptr;
  });
  for (const std::int64_t count : {1, 2, 3}) run(count);
  executor->drain();
  go_on.release();
  executor->join();
  EXPECT_THAT(ran, ElementsAre(1, 2, 3));
  EXPECT_EQ(listener.batches, 3);
}

TEST_F(RunningExecutor, RunsNothingMoreAfterABackendHasFailed) {
  Signal go_on{0};
  start([&](std::int64_t) -> std::unique_ptr<AsyncCollective> {
    await(go_on);
    throw Error(Errc::timeout, "too late");
  });
  run(1);
  run(2);
  go_on.release(2);
  executor->drain();
  executor->join();
  EXPECT_THAT(ran, ElementsAre(1));
  EXPECT_THAT(listener.failures, ElementsAre(Errc::timeout));
  EXPECT_EQ(listener.batches, 0);
}

TEST_F(RunningExecutor, FreesANameBeforeItsWorkIsDone) {
  start([](std::int64_t) { return nullptr; });
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(is_done(run(7)));  // the table refuses a pending name
}

TEST_F(RunningExecutor, GivesAnErrorOfTheProgramsFunctionToItsTensorAlone) {
  start([](std::int64_t) { return nullptr; });
  const auto fails = tensor_of(request_of("fails"));
  fails->submission.finish = [] { throw std::logic_error("the program's"); };
  const auto other = tensor_of(request_of("other"));
  LocalBatch batch;
  batch.tensors = {fails, other};
  run(std::move(batch));
  ASSERT_TRUE(is_done(fails));
  EXPECT_THROW(std::rethrow_exception(fails->work.error()), std::logic_error);
  ASSERT_TRUE(is_done(other));
  EXPECT_EQ(other->work.error(), nullptr);
  EXPECT_TRUE(is_done(run(1)));
  executor->stop();
  executor->join();
  EXPECT_TRUE(listener.failures.empty());
}

TEST_F(RunningExecutor, FinishesNoResultForWhichThereIsNoMemory) {
  start([](std::int64_t) { return nullptr; });
  Request request = request_of("gathered");
  request.kind = OpKind::allgather;
  const auto tensor = tensor_of(std::move(request));
  tensor->submission.allocate = [](const Shape&) -> void* { throw std::bad_alloc(); };
  tensor->submission.finish = [] { ADD_FAILURE() << "there is nothing to finish"; };
  LocalBatch batch;
  batch.tensors = {tensor};
  batch.rows = {{4, 4}};
  run(std::move(batch));
  ASSERT_TRUE(is_done(tensor));
  EXPECT_THROW(std::rethrow_exception(tensor->work.error()), std::bad_alloc);
}

TEST_F(RunningExecutor, CountsATurnOfTheFrozenScheduleAsNoBatchOfTheNegotiation) {
  start([](std::int64_t) { return nullptr; });
  take_turn(request_of("turn", 5));
  executor->drain();
  executor->join();
  EXPECT_THAT(ran, ElementsAre(5));
  EXPECT_EQ(listener.batches, 0);
}

TEST_F(RunningExecutor, AbandonsWhatItAnnouncedWhenAStopEndsItsWaitAtTheFence) {
  Signal arrived{0};
  start([](std::int64_t) { return nullptr; }, std::make_unique<LonelyFence>(arrived));
  take_turn(request_of("turn"));
  await(arrived);
  executor->stop();
  executor->join();
  EXPECT_THAT(listener.failures, ElementsAre(Errc::aborted));
  EXPECT_EQ(script.abandoned, 1);
  EXPECT_TRUE(ran.empty());
}

TEST_F(RunningExecutor, RetractsWhatItAnnouncedWhenAThawWithdrawsTheTurn) {
  Signal arrived{0};
  start([](std::int64_t) { return nullptr; }, std::make_unique<LonelyFence>(arrived));
  const Request request = request_of("turn");
  take_turn(request);
  await(arrived);
  table.resume({table.stop(), 0});
  executor->settle(std::vector<std::uint64_t>{1, 0});
  executor->drain();
  executor->join();
  EXPECT_EQ(script.retracted, 1);
  EXPECT_EQ(script.abandoned, 0);
  EXPECT_TRUE(ran.empty());
  EXPECT_NE(table.find({0, request.name}), nullptr);
}

// The next batch may wait for other ranks, and then nobody would poll what this thread waits for.
TEST_F(RunningExecutor, LetsAWaitingThreadRunNothingWhileAnAsynchronousCollectiveIsPending) {
  Signal polled{0};
  std::atomic<bool> complete{false};
  std::atomic<std::thread::id> driver;
  std::thread::id runner;
  start([&](std::int64_t count) -> std::unique_ptr<AsyncCollective> {
    if (count == 1) {
      return std::make_unique<ScriptedCollective>([&] {
        if (std::this_thread::get_id() == driver) polled.release();
        return complete.load();
      });
    }
    runner = std::this_thread::get_id();
    return nullptr;
  });
  for (int i = 0; i < 20; ++i) {
    complete = false;
    const auto first = run(1);
    std::thread waiting([&] {
      driver = std::this_thread::get_id();
      executor->drive(first->work, WorkProgress::done);
    });
    await(polled);
    EXPECT_TRUE(is_done(run(2)));
    EXPECT_NE(runner, driver.load());
    complete = true;
    waiting.join();
  }
}

/// The parameter tells what comes second: a barrier (true) or a GPU backend's first collective.
class RunningAlone : public RunningExecutor, public testing::WithParamInterface<bool> {};

TEST_P(RunningAlone, BeginsWhenAllThatRanBeforeItIsComplete) {
  std::atomic<bool> queued{false};
  std::atomic<int> polls{0};
  std::shared_ptr<PendingTensor> first;
  bool first_was_done = false;
  start([&](std::int64_t count) -> std::unique_ptr<AsyncCollective> {
    if (count == 1) {
      return std::make_unique<ScriptedCollective>([&] { return queued && ++polls == 10; });
    }
    first_was_done = first->work.done();
    return nullptr;
  });
  script.starts = !GetParam();
  first = run(1);
  const auto second = GetParam() ? run(0, OpKind::barrier)
                                 : run(2, OpKind::allreduce, Device{Device::Kind::cuda, 0});
  queued = true;
  EXPECT_TRUE(is_done(second));
  EXPECT_TRUE(first_was_done);
}

INSTANTIATE_TEST_SUITE_P(BarrierOrStart, RunningAlone, testing::Bool());

TEST(TensorTable, KeepsNothingOfAGroupThatItRefuses) {
  TensorTable table(0, 1);
  const auto member = [](const char* name) {
    Request request = request_of(name);
    request.group = "group";
    return tensor_of(std::move(request));
  };
  add(table, tensor_of(request_of("b")));
  const std::array refused{member("a"), member("b")};
  EXPECT_THROW(static_cast<void>(table.add(refused, 0)), Error);
  const std::array accepted{member("a"), member("c")};
  EXPECT_NO_THROW(static_cast<void>(table.add(accepted, 0)));
}

TEST(TensorTable, KeepsTheFirstErrorThatClosesIt) {
  TensorTable table(0, 1);
  table.close(std::make_exception_ptr(Error(Errc::peer_lost, "rank 1 was lost")));
  table.close(std::make_exception_ptr(Error(Errc::aborted, "aborted")));
  EXPECT_EQ(test::error_of([&] { table.check_open(); }).code(), Errc::peer_lost);
}

/// Rank 0 of two takes a turn that rank 1 has not begun.
class WithdrawnTurn : public testing::Test {
 protected:
  std::shared_ptr<PendingTensor> take(std::uint32_t epoch) {
    const Request request = request_of("a");
    static_cast<void>(table_.freeze(schedule_of(request), epoch));
    auto tensor = tensor_of(request);
    add(table_, tensor);
    EXPECT_TRUE(table_.take_turn(batch_, Clock::now()));
    return tensor;
  }
  void thaw() { table_.resume({table_.stop(), 0}); }

  TensorTable table_{0, 2};
  LocalBatch batch_;
};

TEST_F(WithdrawnTurn, IsNotAnnounced) {
  const auto tensor = take(1);
  thaw();
  EXPECT_FALSE(table_.begin_announcing());
  table_.end_turn();
  EXPECT_EQ(table_.take_unannounced().size(), 1U);
  EXPECT_EQ(table_.find({0, "a"}), tensor);
}

// A mismatch fails the tensor as soon as it is negotiated again. Its owner may then free the memory
// that the announcement copies from. ThreadSanitizer judges this.
TEST_F(WithdrawnTurn, IsNotBeingAnnouncedAnyMoreWhenItsTensorsAreTakenBack) {
  for (std::uint32_t epoch = 1; epoch <= 1'000; ++epoch) {
    const auto tensor = take(epoch);
    std::thread executor([&] {
      if (table_.begin_announcing()) {
        EXPECT_NE(batch_.tensors.front()->submission.keep_alive, nullptr);
        table_.end_announcing();
      }
      table_.end_turn();
    });
    thaw();
    tensor->submission.keep_alive.reset();
    table_.remove(*tensor);
    executor.join();
  }
}

}  // namespace
}  // namespace hvd
