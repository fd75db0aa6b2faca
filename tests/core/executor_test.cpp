#include "engine/executor.hpp"

#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "engine/observer.hpp"
#include "idle_backend.hpp"

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test

constexpr std::chrono::seconds kPatience{20};

class CountingListener final : public Executor::Listener {
 public:
  void turn_taken(const LocalBatch&, const SchedulePosition&, Clock::time_point) override {}
  void tensor_done(PendingTensor& tensor, std::exception_ptr error) override {
    tensor.work.complete(std::move(error));
  }
  void batch_done() override {}
  void backend_failed(const Error& error) override { ADD_FAILURE() << error.what(); }
  void waited(Clock::time_point, Clock::time_point) override {}
  void nothing_runs() override {}
  void stopped() override {}
};

Request request_of(std::string name) {
  Request request;
  request.name = std::move(name);
  request.shape = {4};
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
