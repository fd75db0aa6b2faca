#include "coordinator/executor.hpp"

#include <future>

#include <gtest/gtest.h>

#include "coordinator/observer.hpp"

namespace hvd {
namespace {

constexpr std::chrono::seconds kPatience{20};

// The loop thread thaws between two looks of the executor thread.
TEST(Executor, ATurnThatIsTakenAwayBeforeAnybodyTookItEndsNothing) {
  Observer observer(TimelineOptions{});
  std::atomic<int> looks = 0;
  std::promise<bool> told;  // whether the executor thread goes on
  Executor::Callbacks callbacks;
  callbacks.turn_ready = [&] {
    const int look = ++looks;
    if (look == 3) told.set_value(true);
    return look == 1;
  };
  callbacks.take_turn = [](Job&, Clock::time_point) { return false; };
  callbacks.stopped = [&] {
    if (looks < 3) told.set_value(false);
  };
  Executor executor(
      std::make_unique<CollectiveRunner>(std::vector<std::unique_ptr<Backend>>(), 0, 1, observer),
      nullptr, kPatience, callbacks);
  executor.turn_came();
  auto goes_on = told.get_future();
  ASSERT_EQ(goes_on.wait_for(kPatience), std::future_status::ready);
  EXPECT_TRUE(goes_on.get());
  executor.stop();
  executor.join();
}

}  // namespace
}  // namespace hvd
