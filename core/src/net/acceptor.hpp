// Accepts streams and passes on those whose peer has proven the job's secret.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <hvd/core/internal/event_loop.hpp>

#include "net/server_handshake.hpp"
#include "net/socket.hpp"

namespace hvd::net {

/// A connection that fails the handshake is dropped, logged at info, and accepting goes on. While
/// `kMaxUnproven` connections are in the handshake, or descriptors are short, further ones wait in
/// the kernel.
class Acceptor : public std::enable_shared_from_this<Acceptor>, private ServerHandshake::Owner {
 public:
  static constexpr std::size_t kMaxUnproven = 64;  ///< over all listeners
  static constexpr std::chrono::milliseconds kHandshakeLimit{1'000};
  /// So long a connection waits for a descriptor before `OnShortage` is called, and called again.
  static constexpr std::chrono::milliseconds kShortageLimit{5'000};

  /// The loop thread calls it.
  using OnStream = std::function<void(UniqueFd stream, const Hello& peer)>;
  /// The loop thread calls it with what accept(2) says.
  using OnShortage = std::function<void(const std::string& why)>;

  /// Any thread may call it. `loop` outlives the acceptor or its `close()`.
  Acceptor(EventLoop& loop, const Identity& self, OnStream on_stream,
           OnShortage on_shortage = nullptr);
  /// Only the loop thread may call it.
  void listen(Listener listener);
  /// Closes the listeners and the connections in the handshake; nothing is called back afterwards.
  /// Only the loop thread may call it.
  void close() noexcept;

 private:
  struct Port {
    Port(boost::asio::io_context& io, Listener own);
    Listener listener;
    boost::asio::posix::stream_descriptor wait;  // watches a duplicate of the listener
    bool waiting = false;
  };

  void wait_all();
  void wait(const std::shared_ptr<Port>& port);
  void accept(const std::shared_ptr<Port>& port);
  /// Returns false when nothing is there to accept.
  bool accept_one(int listener);
  void rest(const std::string& why);
  void on_proven(ServerHandshake& handshake, UniqueFd stream, const Hello& peer) override;
  void on_dropped(ServerHandshake& handshake, const std::string& why) override;

  EventLoop& loop_;
  Identity self_;
  OnStream on_stream_;
  OnShortage on_shortage_;
  std::optional<Clock::time_point> short_since_;  ///< empty while connections can be accepted
  Clock::time_point last_shortage_;
  std::vector<std::shared_ptr<Port>> ports_;
  std::set<std::shared_ptr<ServerHandshake>> unproven_;
  boost::asio::steady_timer rest_timer_;
  bool resting_ = false;
  bool closed_ = false;
};

}  // namespace hvd::net
