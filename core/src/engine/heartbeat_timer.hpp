// Calls a function on the loop thread at a fixed interval.
#pragma once

#include <functional>
#include <memory>

#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/types.hpp>

namespace hvd::detail {

class HeartbeatTimer {
 public:
  HeartbeatTimer(EventLoop& loop, Clock::duration interval, std::function<void()> on_tick);
  ~HeartbeatTimer();
  HeartbeatTimer(const HeartbeatTimer&) = delete;
  HeartbeatTimer& operator=(const HeartbeatTimer&) = delete;

  /// Starts the ticks. Only the loop thread may call it.
  void start();
  /// Ends the ticks. Only the loop thread may call it.
  void stop() noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::detail
