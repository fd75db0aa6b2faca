#include "net/server_handshake.hpp"

#include <array>
#include <cerrno>

#include <fmt/format.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>

#include "net/socket.hpp"

namespace hvd::net {
ServerHandshake::ServerHandshake(boost::asio::io_context& io, UniqueFd stream, const Identity& self,
                                 Owner& owner, std::chrono::milliseconds limit)
    : stream_(io),
      timer_(io, limit),
      handshake_(Handshake::server(self, fresh_nonce())),
      owner_(&owner) {
  stream_.assign(stream.get());
  static_cast<void>(stream.release());
}

void ServerHandshake::start() {
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->expire();
  });
  wait();
}

void ServerHandshake::close() noexcept {
  owner_ = nullptr;
  timer_.cancel();
  boost::system::error_code ignored;
  stream_.close(ignored);
}

void ServerHandshake::wait() {
  stream_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       if (!error) self->step();
                     });
}

// The loop itself may be late, so bytes that have arrived by now still count.
void ServerHandshake::expire() {
  if (owner_ != nullptr && rejected_.empty()) step();
  if (owner_ != nullptr) drop(rejected_.empty() ? "it did not finish the handshake" : rejected_);
}

void ServerHandshake::step() {
  try {
    while (owner_ != nullptr && read_some()) {
    }
  } catch (const std::exception& error) {
    if (owner_ != nullptr) drop(error.what());
  }
  if (owner_ != nullptr) wait();
}

bool ServerHandshake::read_some() {
  std::array<std::byte, kHelloSize> chunk{};
  // After a refusal the rest is read and thrown away: closing on unread bytes would reset the
  // connection, and the peer would not read why.
  const std::size_t wanted = rejected_.empty() ? handshake_.wanted() - input_.size() : chunk.size();
  const ssize_t n = ::recv(stream_.native_handle(), chunk.data(), wanted, MSG_DONTWAIT);
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (n <= 0) {
    const std::string how = n == 0 ? "connection closed" : describe_errno(errno);
    drop(rejected_.empty() ? how + " in the handshake" : rejected_);
    return false;
  }
  if (!rejected_.empty()) return false;  // a peer that keeps talking is not read in a loop
  input_.insert(input_.end(), chunk.begin(), chunk.begin() + n);
  if (input_.size() == handshake_.wanted()) take_input();
  return true;
}

void ServerHandshake::take_input() {
  try {
    handshake_.consume(std::exchange(input_, {}));
  } catch (const Error& error) {
    reject(error.what());
    return;
  }
  if (!flush()) return drop("it does not take our part of the handshake");
  if (!handshake_.done()) return;
  timer_.cancel();
  Owner* const owner = std::exchange(owner_, nullptr);
  owner->on_proven(*this, UniqueFd(stream_.release()), handshake_.peer());
}

// All messages of a server fit into the empty buffer of a new socket.
bool ServerHandshake::flush() {
  const Bytes output = handshake_.take_output();
  const ssize_t sent =
      ::send(stream_.native_handle(), output.data(), output.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(output.size());
}

void ServerHandshake::reject(const std::string& why) {
  // A peer that does not speak the protocol at all gets no answer.
  if (!handshake_.has_output() || !flush()) return drop(why);
  rejected_ = why;
  ::shutdown(stream_.native_handle(), SHUT_WR);
}

void ServerHandshake::drop(const std::string& why) {
  Owner* const owner = std::exchange(owner_, nullptr);
  close();
  owner->on_dropped(*this, why);
}

}  // namespace hvd::net
