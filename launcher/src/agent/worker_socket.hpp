// Holds the agent's end of the socket on which hvdrun and a worker of an elastic job exchange the
// messages of elastic_messages.hpp.
#pragma once

#include <functional>
#include <span>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <hvd/core/internal/fd.hpp>
#include <hvd/core/types.hpp>

namespace hvd::launcher {

/// Only the thread that runs `io` uses it. The worker has the other end as HVD_ELASTIC_FD.
class WorkerSocket {
 public:
  /// `on_message` gets what the worker says, which may be any bytes, at most `kMaxElasticMessage`.
  WorkerSocket(boost::asio::io_context& io, UniqueFd socket, std::function<void(Bytes)> on_message);

  /// Returns false when the worker has not read what was sent before, so that there is no room.
  [[nodiscard]] bool send(std::span<const std::byte> message);

 private:
  void wait();
  void receive();

  /// The messages that a worker has to say between two from hvdrun: that it waits, and later that
  /// it was asked to leave. No more are read, so that a worker cannot flood hvdrun.
  static constexpr int kMessagesPerOrder = 2;

  boost::asio::posix::stream_descriptor socket_;
  const std::function<void(Bytes)> on_message_;
  int credit_ = kMessagesPerOrder;
  bool waiting_ = false;
};

}  // namespace hvd::launcher
