#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>

#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/log.hpp>

#include "engine/heartbeat_timer.hpp"

namespace hvd {
namespace {

TEST(EventLoop, RunsTasksInOrderOnItsOwnThread) {
  EventLoop loop;
  EXPECT_FALSE(loop.on_loop_thread());
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) loop.post([&, i] { order.push_back(i); });
  bool inside = false;
  std::string name(16, '\0');
  loop.run_sync([&] {
    inside = loop.on_loop_thread();
    ::pthread_getname_np(::pthread_self(), name.data(), name.size());
    loop.run_sync([&] { order.push_back(100); });  // in place
  });
  EXPECT_TRUE(inside);
  EXPECT_STREQ(name.c_str(), "hvd-loop");
  ASSERT_EQ(order.size(), 101U);
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(EventLoop, RunSyncRethrows) {
  EventLoop loop;
  EXPECT_THROW(loop.run_sync([] { throw std::out_of_range("x"); }), std::out_of_range);
  loop.run_sync([&] {
    EXPECT_THROW(loop.run_sync([] { throw std::out_of_range("y"); }), std::out_of_range);
  });
}

TEST(EventLoop, SurvivesAHandlerThatThrows) {
  EventLoop loop;
  testing::internal::CaptureStderr();
  loop.post([] { throw std::runtime_error("from a handler"); });
  loop.post([] { throw 7; });
  bool ran = false;
  loop.run_sync([&] { ran = true; });
  EXPECT_TRUE(ran);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("from a handler"), std::string::npos) << said;
}

TEST(HeartbeatTimer, TicksOnAfterATickThatThrows) {
  EventLoop loop;
  std::promise<void> second;
  int ticks = 0;
  detail::HeartbeatTimer timer(loop, std::chrono::milliseconds(1), [&] {
    if (++ticks == 1) throw std::runtime_error("from a tick");
    if (ticks == 2) second.set_value();
  });
  testing::internal::CaptureStderr();
  loop.run_sync([&] { timer.start(); });
  EXPECT_EQ(second.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  loop.run_sync([&] { timer.stop(); });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("from a tick"), std::string::npos) << said;
}

TEST(EventLoop, DropsWhatIsQueuedAtTheEnd) {
  auto alive = std::make_shared<int>(0);
  {
    std::promise<void> entered;
    std::promise<void> leave;
    EventLoop loop;
    loop.post([&] {
      entered.set_value();
      leave.get_future().wait_for(std::chrono::seconds(10));
    });
    entered.get_future().wait();
    for (int i = 0; i < 10; ++i) loop.post([alive] { ++*alive; });
    leave.set_value();
  }
  EXPECT_EQ(alive.use_count(), 1);
}

}  // namespace
}  // namespace hvd
