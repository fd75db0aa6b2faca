// Sends and receives frames on an authenticated stream, asynchronously on the loop.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/types.hpp>

#include "net/frame.hpp"

namespace hvd::net {

/// Sends and receives frames on an authenticated stream. Only the loop thread may use it.
class FrameStream : public std::enable_shared_from_this<FrameStream> {
 public:
  /// The methods are never called from inside a method of the stream.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// An exception tells that the payload is malformed, and ends the stream.
    virtual void on_frame(FrameStream& stream, std::span<const std::byte> payload) = 0;
    /// The stream ended, broke or carried something malformed. This is the last call.
    virtual void on_end(FrameStream& stream, const std::string& cause) = 0;
    /// The socket was full and has taken all that was queued.
    virtual void on_room(FrameStream&) {}
  };

  /// Frames that break `rules` end the stream. Any thread may call it.
  FrameStream(EventLoop& loop, UniqueFd stream, const FrameRules& rules);

  /// Begins to read. `listener` lives until `on_end` or `close()`.
  void start(Listener& listener);
  /// Sends at once what the socket takes and queues the rest. After the end the payload is dropped.
  void send(std::span<const std::byte> payload);
  /// Returns the number of bytes that are queued and not yet taken by the socket.
  [[nodiscard]] std::size_t backlog() const noexcept { return backlog_; }
  /// Tells whether the host at the other end has acknowledged all that was sent, or the stream has
  /// ended.
  [[nodiscard]] bool delivered();
  /// Returns when the host at the other end last acknowledged bytes, or the present time if it is
  /// this host.
  [[nodiscard]] Clock::time_point host_answered();
  /// Reads and sends no more, and calls `on_end` with `cause` soon, unless closed before.
  void end_later(const std::string& cause);
  /// Sends what the socket takes now, then closes. The listener is not called again.
  void close() noexcept;

 private:
  void wait_readable();
  void read();
  /// Gives the complete frames of `input_` to the listener.
  void deliver(std::span<const std::byte> bytes);
  void write();
  void wait_writable();
  void end(const std::string& cause);

  EventLoop& loop_;
  boost::asio::posix::stream_descriptor stream_;
  FrameRules rules_;
  Listener* listener_ = nullptr;
  Bytes input_;               // a frame may be incomplete
  std::deque<Bytes> output_;  // whole frames
  std::size_t written_ = 0;   // bytes of the first frame that are written
  std::size_t backlog_ = 0;
  bool writing_ = false;     // a wait for room is open
  std::string write_error_;  // reading goes on, since messages of the peer may still come
  bool ending_ = false;      // `end_later` was called
  bool closed_ = false;
};

}  // namespace hvd::net
