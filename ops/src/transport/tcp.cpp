// One stream per pair of ranks; both directions of an exchange in one poll loop.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hvd/core/session.hpp>
#include <hvd/ops/transport.hpp>

#include "fusion/buffer.hpp"
#include "transport/backoff.hpp"
#include "transport/failure.hpp"
#include "transport/poll_wait.hpp"

namespace hvd {
namespace {

/// Received bytes wait here for the sink: small enough to stay in the cache.
constexpr std::size_t kStaging = std::size_t{256} << 10;

[[nodiscard]] bool would_block() noexcept { return errno == EAGAIN || errno == EWOULDBLOCK; }

[[noreturn]] void throw_broken(int peer) {
  const bool reset = errno == ECONNRESET || errno == EPIPE;
  throw peer_lost(peer, reset ? "connection reset" : std::strerror(errno));
}

/// What is left to send of one message.
class SendSide {
 public:
  SendSide(const Outgoing& out, int fd) noexcept : peer_(out.peer), fd_(fd), rest_(out.bytes) {}

  [[nodiscard]] bool done() const noexcept { return fd_ < 0 || rest_.empty(); }
  [[nodiscard]] int peer() const noexcept { return peer_; }
  [[nodiscard]] pollfd interest() const noexcept {
    return {.fd = done() ? -1 : fd_, .events = POLLOUT, .revents = 0};
  }

  /// True when bytes went out.
  bool advance() {
    if (done()) return false;
    const ssize_t sent = ::send(fd_, rest_.data(), rest_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (would_block() || errno == EINTR) return false;
      throw_broken(peer_);
    }
    rest_ = rest_.subspan(static_cast<std::size_t>(sent));
    return sent > 0;
  }

 private:
  int peer_;
  int fd_;
  std::span<const std::byte> rest_;
};

/// What is left to receive of one message.
class ReceiveSide {
 public:
  ReceiveSide(const Incoming& in, int fd, std::byte* staging) noexcept
      : in_(in), fd_(fd), staging_(staging) {}

  [[nodiscard]] bool done() const noexcept { return fd_ < 0 || received_ == in_.size; }
  [[nodiscard]] int peer() const noexcept { return in_.peer; }
  [[nodiscard]] pollfd interest() const noexcept {
    return {.fd = done() ? -1 : fd_, .events = POLLIN, .revents = 0};
  }

  /// True when bytes came in.
  bool advance() {
    if (done()) return false;
    const std::size_t left = in_.size - received_;
    std::byte* const to = in_.into != nullptr ? in_.into + received_ : staging_ + held_;
    const std::size_t room = in_.into != nullptr ? left : std::min(left, kStaging - held_);
    const ssize_t got = ::recv(fd_, to, room, MSG_DONTWAIT);
    if (got == 0) throw peer_lost(in_.peer, "closed the connection");
    if (got < 0) {
      if (would_block() || errno == EINTR) return false;
      throw_broken(in_.peer);
    }
    received_ += static_cast<std::size_t>(got);
    if (in_.into == nullptr) feed(static_cast<std::size_t>(got));
    return true;
  }

 private:
  /// Whole elements to the sink; the beginning of the next one moves to the front.
  void feed(std::size_t got) {
    held_ += got;
    const std::size_t whole = held_ / in_.granularity * in_.granularity;
    if (whole == 0) return;
    in_.sink(received_ - held_, {staging_, whole});
    held_ -= whole;
    std::memmove(staging_, staging_ + whole, held_);
  }

  const Incoming& in_;
  int fd_;
  std::byte* staging_;
  std::size_t received_ = 0;
  std::size_t held_ = 0;
};

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(Session& session)
      : session_(session),
        rank_(session.topology().rank),
        streams_(static_cast<std::size_t>(session.topology().size)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_) throw Error(Errc::resource, fmt::format("eventfd: {}", std::strerror(errno)));
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "tcp"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(streams_.size()); }

  void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) override {
    failure_.guard([&] { run(out, in, deadline); });
  }

  void abort() noexcept override {
    failure_.abort();
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
    session_.network().abort();  // a stream may be opening
  }

 private:
  void run(const Outgoing& out, const Incoming& in, Deadline deadline) {
    const int to = out.bytes.empty() ? -1 : out.peer;
    const int from = in.size == 0 ? -1 : in.peer;
    // In rank order: the lower rank of a pair waits for the higher one, and so nobody in a circle.
    for (const int peer : {std::min(to, from), std::max(to, from)}) open(peer, deadline);

    SendSide sending(out, fd_of(to));
    ReceiveSide receiving(in, fd_of(from), from < 0 ? nullptr : staging_.reserve(kStaging));
    // Sockets cost a system call a try, so there is nothing to spin on.
    Backoff backoff(0);
    while (!sending.done() || !receiving.done()) {
      const bool sent = sending.advance();
      const bool received = receiving.advance();
      if (sent || received) {
        backoff.reset();
        continue;
      }
      failure_.check();
      if (Clock::now() >= deadline) {
        throw receiving.done() ? peer_timeout(sending.peer(), "takes no bytes")
                               : peer_timeout(receiving.peer(), "sends no bytes");
      }
      if (backoff.pause()) continue;
      std::array<pollfd, 3> fds{pollfd{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                                sending.interest(), receiving.interest()};
      static_cast<void>(poll_until(fds, deadline));
    }
  }

  [[nodiscard]] int fd_of(int peer) const noexcept {
    return peer < 0 ? -1 : streams_[static_cast<std::size_t>(peer)].get();
  }

  /// The kernel sizes the buffers: setting them would only turn its tuning off.
  void open(int peer, Deadline deadline) {
    if (peer < 0 || fd_of(peer) >= 0) return;
    const std::string label = std::string(kTcpLabelPrefix) + "data";
    try {
      streams_[static_cast<std::size_t>(peer)] = session_.network().open(peer, label, deadline);
    } catch (const Error&) {
      failure_.check();  // the network was aborted because we were
      throw;
    }
  }

  Session& session_;
  int rank_;
  std::vector<UniqueFd> streams_;  ///< by rank
  UniqueFd wake_;                  ///< readable once aborted
  FusionBuffer staging_;
  Failure failure_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(Session& session) {
  return std::make_unique<TcpTransport>(session);
}

}  // namespace hvd
