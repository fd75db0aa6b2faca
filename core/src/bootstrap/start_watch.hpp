// Watches a descriptor while a context starts.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/posix/stream_descriptor.hpp>

#include <hvd/core/internal/event_loop.hpp>

namespace hvd::detail {

/// Any thread but the loop's makes and destroys it. `loop` outlives it.
class StartWatch {
 public:
  /// Calls `on_readable` once, on the loop thread, when something can be read from `fd`, also when
  /// that was so before. Throws Errc::resource.
  StartWatch(EventLoop& loop, int fd, std::function<void()> on_readable);
  /// `on_readable` is not called afterwards.
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  EventLoop& loop_;
  std::shared_ptr<boost::asio::posix::stream_descriptor> duplicate_;
};

}  // namespace hvd::detail
