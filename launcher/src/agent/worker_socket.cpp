#include "agent/worker_socket.hpp"

#include <cerrno>
#include <utility>

#include <sys/socket.h>

#include <hvd/core/internal/elastic_messages.hpp>

namespace hvd::launcher {

WorkerSocket::WorkerSocket(boost::asio::io_context& io, UniqueFd socket,
                           std::function<void(Bytes)> on_message)
    : socket_(io, socket.get()), on_message_(std::move(on_message)) {
  static_cast<void>(socket.release());
  wait();
}

bool WorkerSocket::send(std::span<const std::byte> message) {
  const ssize_t sent =
      ::send(socket_.native_handle(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return errno != EAGAIN;  // otherwise its process has ended, or is about to
  credit_ = kMessagesPerOrder;
  wait();
  return true;
}

void WorkerSocket::wait() {
  if (credit_ == 0 || std::exchange(waiting_, true)) return;
  socket_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                     [this](boost::system::error_code error) {
                       if (error) return;
                       waiting_ = false;
                       receive();
                     });
}

void WorkerSocket::receive() {
  Bytes bytes(detail::kMaxElasticMessage);  // a longer message is cut, and no message either way
  const ssize_t size = ::recv(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return wait();
  if (size <= 0) return;  // the worker's end is closed
  bytes.resize(static_cast<std::size_t>(size));
  --credit_;
  on_message_(std::move(bytes));
  wait();
}

}  // namespace hvd::launcher
