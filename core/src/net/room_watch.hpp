// Tells when a socket that was full takes bytes again.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/posix/stream_descriptor.hpp>

#include <hvd/core/event_loop.hpp>
#include <hvd/core/fd.hpp>

namespace hvd::net {

/// Loop thread, but for the constructor.
class RoomWatch : public std::enable_shared_from_this<RoomWatch> {
 public:
  /// `socket` is a duplicate of the descriptor that others read and write.
  RoomWatch(EventLoop& loop, UniqueFd socket);

  /// Calls `then` once there is room, or the socket has broken; not after `close()`. One at a time.
  void wait(std::function<void()> then);
  void close() noexcept;

 private:
  boost::asio::posix::stream_descriptor socket_;
  bool closed_ = false;
};

}  // namespace hvd::net
