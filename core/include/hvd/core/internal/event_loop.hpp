// Declares the loop thread, which runs one Boost.Asio io_context.
#pragma once

#include <functional>
#include <memory>

namespace boost::asio {
class io_context;
}

namespace hvd {

class EventLoop {
 public:
  /// Starts the thread. Throws Errc::resource when the system has no descriptors or threads left.
  EventLoop();
  /// Stops the loop, drops what is still queued and joins the thread. The loop thread must not call
  /// it.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Queues `task` for the loop thread. Any thread may call it.
  void post(std::function<void()> task);
  /// Runs `task` on the loop thread and returns when it has run; rethrows what it threw. Any thread
  /// may call it. On the loop thread itself the task runs directly.
  void run_sync(const std::function<void()>& task);
  /// Tells the loop that an event is likely to follow within microseconds. The loop then yields its
  /// core for a while before it sleeps, since waking it would take longer than the message itself.
  /// Only the loop thread may call it.
  void expect_more() noexcept;
  [[nodiscard]] bool on_loop_thread() const noexcept;
  [[nodiscard]] boost::asio::io_context& io() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
