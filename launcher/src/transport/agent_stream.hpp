// Carries frames over a pair of descriptors, which are a socket on this host, or ssh's standard
// input and output to other hosts.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <hvd/core/internal/fd.hpp>
#include <hvd/core/types.hpp>

#include "transport/frames.hpp"

namespace hvd::launcher {

/// Drops what arrives over a socket, whose output has been shut down, until the other side has
/// closed too, at most until `deadline`, or until `delivery_deadline` while the network has not
/// delivered what was sent. A connection that is closed while bytes still arrive is reset, and then
/// the last bytes may be lost.
void drain(int socket, Deadline deadline, Deadline delivery_deadline);

/// Only the thread that runs `io` uses it. It may be destroyed only when `io` runs no more
/// handlers.
class AgentStream {
 public:
  /// `input` and `output` are two descriptors, also when they lead to one socket.
  AgentStream(boost::asio::io_context& io, UniqueFd input, UniqueFd output);

  /// Calls `on_greeting` with the version of an agent that greets, and skips the text that a login
  /// shell prints before. When the stream ends, or too much other text arrives, `on_end` is called
  /// instead with that text. Must be called before `start`, or not at all.
  void await_greeting(std::function<void(std::string)> on_greeting,
                      std::function<void(std::string)> on_end);
  /// `on_end` is called once, as the last call, with the error, or with "" for an orderly end.
  void start(std::function<void(Frame)> on_frame, std::function<void(std::string)> on_end);
  /// Calls `on_flushed` from now on, also before `start`, when the system has taken all frames that
  /// were sent.
  void when_flushed(std::function<void()> on_flushed) { on_flushed_ = std::move(on_flushed); }
  /// Sends the line with this program's version, with which an agent begins.
  void greet();
  /// Queues a frame, or drops it once the stream has ended. The caller limits how much it queues.
  void send(const Frame& frame);
  /// Returns whether nothing that was sent waits in this process.
  [[nodiscard]] bool flushed() const noexcept { return ended_ || queue_.empty(); }
  /// Closes the stream, which the other side notices. No callback follows.
  void close();
  /// Does what `close` does, but what the system has taken arrives even if the other side, which is
  /// a socket, still sends. `drain` has to follow.
  void finish();
  /// Does what the function `drain` does, then closes.
  void drain(Deadline deadline, Deadline delivery_deadline = {});

 private:
  void read_greeting();
  void queue(Bytes bytes);
  void read_length();
  void read_body();
  void write_next();
  void end(const std::string& why);

  boost::asio::posix::stream_descriptor input_;
  boost::asio::posix::stream_descriptor output_;
  std::function<void(std::string)> on_greeting_;
  std::string heard_;  ///< the text before the greeting
  char next_ = 0;
  std::function<void(Frame)> on_frame_;
  std::function<void(std::string)> on_end_;
  std::function<void()> on_flushed_;
  std::array<std::byte, 4> length_{};
  Bytes body_;
  std::deque<Bytes> queue_;
  bool ended_ = false;
};

}  // namespace hvd::launcher
