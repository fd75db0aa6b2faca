// The server's side of one handshake, on the loop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <hvd/core/fd.hpp>

#include "net/handshake.hpp"

namespace hvd::net {

/// Reads no byte beyond the handshake. Loop thread only.
class Greeting : public std::enable_shared_from_this<Greeting> {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_greeted(Greeting& greeting, UniqueFd stream, const Hello& peer) = 0;
    virtual void on_dropped(Greeting& greeting, const std::string& why) = 0;
  };

  Greeting(boost::asio::io_context& io, UniqueFd stream, const Identity& self, Owner& owner,
           std::chrono::milliseconds limit);
  /// Calls the owner exactly once, later than this call, unless closed.
  void start();
  void close() noexcept;

 private:
  void wait();
  void expire();
  void step();
  /// Returns false when there is nothing more to read now.
  bool read_some();
  void take_input();
  /// False when the peer does not take it.
  bool flush();
  void reject(const std::string& why);
  void drop(const std::string& why);

  boost::asio::posix::stream_descriptor stream_;
  boost::asio::steady_timer timer_;
  Handshake handshake_;
  Owner* owner_;  // null once told
  Bytes input_;
  std::string rejected_;  // why, while the refusal travels
};

}  // namespace hvd::net
