// Frames on an authenticated stream, asynchronously on the loop.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <hvd/core/event_loop.hpp>
#include <hvd/core/fd.hpp>

#include "net/frame.hpp"

namespace hvd::net {

/// Loop thread only.
class FrameStream : public std::enable_shared_from_this<FrameStream> {
 public:
  /// Never called from inside a method of the stream.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// An exception means that the payload makes no sense, and ends the stream.
    virtual void on_frame(FrameStream& stream, std::span<const std::byte> payload) = 0;
    /// At most once, the last call: the stream ended, broke or carried something malformed.
    virtual void on_end(FrameStream& stream, const std::string& cause) = 0;
  };

  /// Frames that break the rules end the stream. Any thread.
  FrameStream(EventLoop& loop, UniqueFd stream, const FrameRules& rules);

  /// Begins to read. `listener` lives until `on_end` or `close()`.
  void start(Listener& listener);
  /// Sends at once what the socket takes and queues the rest. Dropped after the end.
  void send(std::span<const std::byte> payload);
  /// Bytes queued and not yet taken by the socket.
  [[nodiscard]] std::size_t backlog() const noexcept { return backlog_; }
  /// Reads and sends no more, and calls `on_end` with `cause` soon, unless closed before.
  void end_later(const std::string& cause);
  /// Sends what the socket takes now, then closes. The listener is not called again.
  void close() noexcept;

 private:
  void wait_readable();
  void read();
  /// Hands over the complete frames of `input_`.
  void deliver();
  void write();
  void wait_writable();
  void end(const std::string& cause);

  EventLoop& loop_;
  boost::asio::posix::stream_descriptor stream_;
  FrameRules rules_;
  Listener* listener_ = nullptr;
  Bytes input_;               // a frame may be incomplete
  std::deque<Bytes> output_;  // whole frames
  std::size_t written_ = 0;   // of the first of them
  std::size_t backlog_ = 0;
  bool writing_ = false;     // a wait for room is open
  std::string write_error_;  // reading goes on: the peer's last words may still be there
  bool ending_ = false;      // `end_later` was called
  bool closed_ = false;
};

}  // namespace hvd::net
