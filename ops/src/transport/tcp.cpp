// Implements the transport over TCP, with one or more streams per pair of ranks, and with both
// directions of an exchange in one poll loop.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/socket.h>

#include <hvd/core/internal/poll.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/ops/internal/transport.hpp>

#include "fusion/buffer.hpp"
#include "shm/descriptors.hpp"
#include "transport/failure.hpp"
#include "transport/round_trip.hpp"
#include "transport/stripes.hpp"
#include "transport/yield_before_sleep.hpp"

namespace hvd {

using namespace detail;

namespace {

/// Bytes for a sink are received in memory of this size, which stays in the cache.
constexpr std::size_t kStaging = std::size_t{256} << 10;

/// The most bytes in flight, over all streams, to a rank of the same host and to a near one: so few
/// are still in the caches when the receiver copies them. (The kernel doubles these sizes for its
/// own use.) A rank is near if the round trip takes less than `kNear`, in which time only a link of
/// 100 Gbit/s could carry more than `kSentNear`.
constexpr int kSentWithinHost = 192 << 10;
constexpr int kSentNear = 384 << 10;
constexpr std::chrono::microseconds kNear{30};
/// With fewer bytes in flight a stream stalls until the other end's delayed acknowledgement.
constexpr int kLeastSent = 64 << 10;

/// A lack of memory passes, and is not the end of the peer.
[[nodiscard]] bool would_block() noexcept {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM;
}

[[noreturn]] void throw_broken(int peer) {
  const bool reset = errno == ECONNRESET || errno == EPIPE;
  throw peer_lost(peer, reset ? "connection reset" : std::strerror(errno));
}

/// Holds one stream of a peer, and its remaining part of one message.
struct Strand {
  int fd;
  Stripes rest;
  std::byte* staging = nullptr;  ///< memory for bytes that go to a sink
  std::size_t held = 0;          ///< bytes in `staging` that are no whole element yet
};

class SendSide {
 public:
  SendSide(const Outgoing& out, const std::vector<UniqueFd>& streams) : out_(out) {
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const Stripes stripes(out.bytes.size(), static_cast<int>(streams.size()),
                            static_cast<int>(i));
      if (!stripes.done()) strands_.push_back({streams[i].get(), stripes});
    }
  }

  [[nodiscard]] bool done() const noexcept { return strands_.empty(); }
  [[nodiscard]] int peer() const noexcept { return out_.peer; }
  void add_interest(std::vector<pollfd>& fds) const {
    for (const Strand& strand : strands_) {
      fds.push_back({.fd = strand.fd, .events = POLLOUT, .revents = 0});
    }
  }

  /// Returns true when bytes were sent.
  bool advance() {
    bool moved = false;
    for (Strand& strand : strands_) moved = advance(strand) || moved;
    if (moved) std::erase_if(strands_, [](const Strand& strand) { return strand.rest.done(); });
    return moved;
  }

 private:
  bool advance(Strand& strand) const {
    const std::span<const std::byte> bytes =
        out_.bytes.subspan(strand.rest.offset(), strand.rest.left());
    const ssize_t sent = ::send(strand.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (would_block() || errno == EINTR) return false;
      throw_broken(out_.peer);
    }
    strand.rest.advance(static_cast<std::size_t>(sent));
    return sent > 0;
  }

  const Outgoing& out_;
  std::vector<Strand> strands_;
};

class ReceiveSide {
 public:
  ReceiveSide(const Incoming& in, const std::vector<UniqueFd>& streams, FusionBuffer& staging)
      : in_(in), room_(kStaging / std::max<std::size_t>(streams.size(), 1)) {
    std::byte* to = nullptr;
    if (in.into == nullptr && in.size > 0) to = staging.reserve(kStaging);
    for (std::size_t i = 0; i < streams.size(); ++i) {
      const Stripes stripes(in.size, static_cast<int>(streams.size()), static_cast<int>(i));
      if (stripes.done()) continue;
      strands_.push_back({streams[i].get(), stripes, to ? to + i * room_ : nullptr});
    }
  }

  [[nodiscard]] bool done() const noexcept { return strands_.empty(); }
  [[nodiscard]] int peer() const noexcept { return in_.peer; }
  void add_interest(std::vector<pollfd>& fds) const {
    for (const Strand& strand : strands_) {
      fds.push_back({.fd = strand.fd, .events = POLLIN, .revents = 0});
    }
  }

  /// Returns true when bytes were received.
  bool advance() {
    bool moved = false;
    for (Strand& strand : strands_) moved = advance(strand) || moved;
    if (moved) std::erase_if(strands_, [](const Strand& strand) { return strand.rest.done(); });
    return moved;
  }

 private:
  bool advance(Strand& strand) const {
    const bool staged = in_.into == nullptr;
    std::byte* const to = staged ? strand.staging + strand.held : in_.into + strand.rest.offset();
    const std::size_t room =
        staged ? std::min(strand.rest.left(), room_ - strand.held) : strand.rest.left();
    const ssize_t got = ::recv(strand.fd, to, room, MSG_DONTWAIT);
    if (got == 0) throw peer_lost(in_.peer, "closed the connection");
    if (got < 0) {
      if (would_block() || errno == EINTR) return false;
      throw_broken(in_.peer);
    }
    if (staged) feed(strand, static_cast<std::size_t>(got));
    strand.rest.advance(static_cast<std::size_t>(got));
    return true;
  }

  /// Passes whole elements to the sink, and moves the begin of an incomplete one to the front.
  void feed(Strand& strand, std::size_t got) const {
    const std::size_t begin = strand.rest.offset() - strand.held;
    strand.held += got;
    const std::size_t whole = strand.held / in_.granularity * in_.granularity;
    if (whole == 0) return;
    in_.sink(begin, {strand.staging, whole});
    strand.held -= whole;
    std::memmove(strand.staging, strand.staging + whole, strand.held);
  }

  const Incoming& in_;
  const std::size_t room_;  // of a strand's staging memory
  std::vector<Strand> strands_;
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(Session& session, int streams)
      : session_(session),
        rank_(session.topology().rank),
        here_(ranks_here(session.topology())),
        most_(streams),
        streams_(static_cast<std::size_t>(session.topology().size)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "tcp"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(streams_.size()); }

  void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) override {
    failure_.guard([&] { run(out, in, deadline); });
  }

  void abort() noexcept override {
    failure_.abort();
    wake_.raise();
    session_.network().abort();  // ends a wait for a stream
  }

 private:
  void run(const Outgoing& out, const Incoming& in, Deadline deadline) {
    const int to = out.bytes.empty() ? -1 : out.peer;
    const int from = in.size == 0 ? -1 : in.peer;
    const auto open_for = [&](int peer) {
      const bool many = (peer == to && Stripes::many(out.bytes.size())) ||
                        (peer == from && Stripes::many(in.size));
      open(peer, many ? most_ : 1, deadline);
    };
    // Streams are opened in the order of ranks. A rank waits only for higher ranks to open a stream
    // to it, so the waits form no cycle.
    open_for(std::min(to, from));
    open_for(std::max(to, from));

    SendSide sending(out, streams_to(to));
    ReceiveSide receiving(in, streams_to(from), staging_);
    // Trying a socket is a system call, so this loop yields the core instead of spinning.
    YieldBeforeSleep yields;
    while (!sending.done() || !receiving.done()) {
      const bool sent = sending.advance();
      const bool received = receiving.advance();
      if (sent || received) {
        yields.reset();
        continue;
      }
      failure_.check();
      if (Clock::now() >= deadline) {
        throw receiving.done() ? peer_timeout(sending.peer(), "takes no bytes")
                               : peer_timeout(receiving.peer(), "sends no bytes");
      }
      if (yields.pause()) continue;
      std::vector<pollfd> fds{wake_.interest()};
      sending.add_interest(fds);
      receiving.add_interest(fds);
      static_cast<void>(poll_until(fds, deadline));
    }
  }

  [[nodiscard]] const std::vector<UniqueFd>& streams_to(int peer) const noexcept {
    return peer < 0 ? nobody_ : streams_[static_cast<std::size_t>(peer)];
  }

  /// Opens streams to `peer` until there are `count`. Both sides know the size of the message, and
  /// so agree on their number.
  void open(int peer, int count, Deadline deadline) {
    if (peer < 0) return;
    std::vector<UniqueFd>& streams = streams_[static_cast<std::size_t>(peer)];
    try {
      while (std::ssize(streams) < count) {
        streams.push_back(session_.network().open(
            peer, fmt::format("{}data{}", kTcpLabelPrefix, streams.size()), deadline));
        limit_what_is_sent(peer, streams.back().get());
      }
    } catch (const Error&) {
      failure_.check();  // the network was aborted because this transport was aborted
      throw;
    }
  }

  /// Limits the send buffer of a stream to a rank of this host or to a near one. The buffers of
  /// others are left to the kernel, whose own tuning a limit would turn off.
  void limit_what_is_sent(int peer, int stream) const noexcept {
    const bool here = std::binary_search(here_.begin(), here_.end(), peer);
    if (!here && shortest_round_trip(stream).value_or(kNear) >= kNear) return;
    const int bytes = std::max((here ? kSentWithinHost : kSentNear) / most_, kLeastSent);
    static_cast<void>(::setsockopt(stream, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes));
  }

  Session& session_;
  int rank_;
  const std::vector<int> here_;                 ///< ranks of this host
  int most_;                                    ///< streams per peer
  std::vector<std::vector<UniqueFd>> streams_;  ///< by rank
  const std::vector<UniqueFd> nobody_;
  WakeEvent wake_;  ///< raised once aborted
  FusionBuffer staging_;
  Failure failure_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(Session& session, int streams) {
  return std::make_unique<TcpTransport>(session, streams);
}

}  // namespace hvd
