// Runs the server's side of one handshake on the event loop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <hvd/core/internal/fd.hpp>

#include "net/handshake.hpp"

namespace hvd::net {

/// Reads no byte beyond the handshake. Only the loop thread may call it.
class ServerHandshake : public std::enable_shared_from_this<ServerHandshake> {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_proven(ServerHandshake& handshake, UniqueFd stream, const Hello& peer) = 0;
    virtual void on_dropped(ServerHandshake& handshake, const std::string& why) = 0;
  };

  ServerHandshake(boost::asio::io_context& io, UniqueFd stream, const Identity& self, Owner& owner,
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
  /// Returns false when the peer does not read it.
  bool flush();
  void reject(const std::string& why);
  void drop(const std::string& why);

  boost::asio::posix::stream_descriptor stream_;
  boost::asio::steady_timer timer_;
  Handshake handshake_;
  Owner* owner_;  // null once it has been called
  Bytes input_;
  std::string rejected_;  // why; empty while the peer is not rejected
};

}  // namespace hvd::net
