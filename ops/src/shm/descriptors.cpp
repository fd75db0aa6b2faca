#include "shm/descriptors.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <hvd/core/internal/host_identity.hpp>
#include <hvd/core/internal/poll.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/core/internal/wire.hpp>

#include "transport/failure.hpp"

namespace hvd::detail {
namespace {

/// The first byte of a message.
constexpr std::byte kDescriptors{1};
constexpr std::byte kError{2};

/// The kernel passes at most 253 descriptors with one message.
constexpr std::size_t kMost = 250;
/// Room for a few more than are expected, so that they can be seen and closed.
constexpr std::size_t kRoom = CMSG_SPACE((kMost + 3) * sizeof(int));
constexpr std::size_t kMaxCause = 256;
constexpr int kRetryMs = 10;

void wait_for(int stream, short events, int peer, Deadline deadline) {
  std::array<pollfd, 1> fds{pollfd{.fd = stream, .events = events, .revents = 0}};
  if (!poll_until(fds, deadline)) throw peer_timeout(peer, "does not pass its shared memory");
}

/// Throws the error of a call on the stream to `peer`. The kernel limits the descriptors that all
/// processes of a user have in flight (ETOOMANYREFS), and may lack memory: the peer is alive then.
[[noreturn]] void throw_stream_error(int peer) {
  const bool shortage = errno == ETOOMANYREFS || errno == ENOMEM || errno == ENOBUFS;
  if (!shortage) throw peer_lost(peer, std::strerror(errno));
  throw Error(Errc::resource, fmt::format("cannot pass shared memory to or from rank {}: {}", peer,
                                          std::strerror(errno)));
}

void send_some(int stream, std::span<const int> fds, int peer, Deadline deadline) {
  std::byte token = kDescriptors;
  iovec data{.iov_base = &token, .iov_len = 1};
  alignas(cmsghdr) std::array<std::byte, kRoom> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  while (::sendmsg(stream, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno == ETOOMANYREFS && Clock::now() < deadline) {
      ::poll(nullptr, 0, kRetryMs);  // until other jobs have received theirs
      continue;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK) throw_stream_error(peer);
    wait_for(stream, POLLOUT, peer, deadline);
  }
}

/// Takes over the descriptors that came with `message`.
std::vector<UniqueFd> take(msghdr& message) {
  std::vector<UniqueFd> taken;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < fds; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      taken.emplace_back(fd);
    }
  }
  return taken;
}

/// Reads the rest of a message of `send_error`, which was sent as a whole, and throws its error.
[[noreturn]] void throw_error(int stream, int peer) {
  std::array<std::byte, 2 * kMaxCause> bytes{};
  const ssize_t got = ::recv(stream, bytes.data(), bytes.size(), MSG_DONTWAIT);
  const auto size = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  WireReader in(std::span<const std::byte>(bytes).first(size), "error of the local leader");
  const std::uint8_t code = in.u8();
  Fault fault;
  fault.rank = in.i32();
  fault.cause = in.text(kMaxCause);
  if (code > static_cast<std::uint8_t>(Errc::internal)) {
    throw peer_violation(peer, "passed an unknown error");
  }
  throw Error(static_cast<Errc>(code), std::move(fault));
}

std::vector<UniqueFd> receive_some(int stream, std::size_t count, int peer, Deadline deadline) {
  std::byte token{};
  iovec data{.iov_base = &token, .iov_len = 1};
  alignas(cmsghdr) std::array<std::byte, kRoom> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  ssize_t got = -1;
  for (;;) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    got = ::recvmsg(stream, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got >= 0) break;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) throw_stream_error(peer);
    wait_for(stream, POLLIN, peer, deadline);
  }
  std::vector<UniqueFd> taken = take(message);
  if (got == 0) throw peer_lost(peer, "closed the connection");
  if (token == kError && taken.empty()) throw_error(stream, peer);
  // The kernel cuts off descriptors for which this process has no room.
  if (taken.size() < count && (message.msg_flags & MSG_CTRUNC) != 0) {
    throw Error(
        Errc::resource,
        fmt::format("no descriptor left for the shared memory that rank {} passes (ulimit -n)",
                    peer));
  }
  if (taken.size() != count) {
    throw peer_violation(peer, fmt::format("passed {} descriptors", taken.size()));
  }
  return taken;
}

}  // namespace

void send_descriptors(int stream, std::span<const int> fds, int peer, Deadline deadline) {
  for (; !fds.empty(); fds = fds.subspan(std::min(kMost, fds.size()))) {
    send_some(stream, fds.first(std::min(kMost, fds.size())), peer, deadline);
  }
}

std::vector<UniqueFd> receive_descriptors(int stream, std::size_t count, int peer,
                                          Deadline deadline) {
  std::vector<UniqueFd> all;
  while (all.size() < count) {
    const std::size_t next = std::min(kMost, count - all.size());
    for (UniqueFd& fd : receive_some(stream, next, peer, deadline)) all.push_back(std::move(fd));
  }
  return all;
}

void send_error(int stream, const Error& error) noexcept {
  try {
    WireWriter out;
    out.u8(std::to_integer<std::uint8_t>(kError));
    out.u8(static_cast<std::uint8_t>(error.code()));
    out.i32(error.fault().rank);
    out.text(std::string_view(error.fault().cause).substr(0, kMaxCause));
    const Bytes message = out.take();
    // A rank whose stream has no room gets no error and fails at its own deadline.
    [[maybe_unused]] const ssize_t sent =
        ::send(stream, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } catch (const std::exception&) {
    // Without memory for the message the other end only sees that this rank's stream ends.
  }
}

namespace {

/// The time that a rank waits for the leader beyond its own deadline, because the leader knows
/// which ranks are missing.
constexpr std::chrono::milliseconds kAnswerTime{1'000};
/// The number of descriptors of a rank: those of its memory and of its stream.
constexpr std::size_t kEach = 2;

struct StreamPair {
  UniqueFd own;
  UniqueFd others;
};

StreamPair make_stream_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw Error(Errc::resource, fmt::format("socketpair: {}", std::strerror(errno)));
  }
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// Returns the error with this rank as its culprit if it says that something is short here.
Error with_culprit(const Error& error, int rank) {
  Fault fault = error.fault();
  if (error.code() == Errc::resource && fault.rank < 0) fault.rank = rank;
  return {error.code(), std::move(fault)};
}

/// Opens a stream to each of `others` and sends the error, by the deadline.
void open_and_send_error(PeerNetwork& network, std::span<const int> others, std::string_view label,
                         const Error& error, Deadline deadline) noexcept {
  for (const int other : others) {
    try {
      send_error(network.open(other, label, deadline).get(), error);
    } catch (const std::exception&) {
      // That rank does not come, or will find that this one has gone.
    }
  }
}

/// Does the leader's part of the exchange. `all` holds its own descriptors; the result holds those
/// of all ranks, in the order of `ranks`.
std::vector<UniqueFd> gather_and_pass(PeerNetwork& network, std::span<const int> ranks,
                                      std::string_view label, std::vector<UniqueFd> all,
                                      Deadline deadline) {
  const std::span<const int> others = ranks.subspan(1);
  std::vector<UniqueFd> streams;
  try {
    for (const int other : others) {
      streams.push_back(network.open(other, label, deadline));
      for (UniqueFd& fd : receive_descriptors(streams.back().get(), kEach, other, deadline)) {
        all.push_back(std::move(fd));
      }
    }
    std::vector<int> fds;
    for (const UniqueFd& fd : all) fds.push_back(fd.get());
    for (std::size_t i = 0; i < others.size(); ++i) {
      const int stream = streams[i].get();
      send_descriptors(stream, fds, others[i], deadline);
      // The kernel limits the descriptors that a user has in flight. So the leader goes on to the
      // next rank when this one has received all, which it confirms by sending one back.
      static_cast<void>(receive_descriptors(stream, 1, others[i], deadline));
    }
  } catch (const Error& error) {
    const Error told = with_culprit(error, ranks.front());
    for (const UniqueFd& stream : streams) send_error(stream.get(), told);
    // After the deadline this tells only those that have come already, and waits for nobody.
    open_and_send_error(network, others.subspan(streams.size()), label, told,
                        std::min(deadline, Clock::now() + kAnswerTime));
    throw;
  }
  return all;
}

/// Does the part of the other ranks in the exchange.
std::vector<UniqueFd> pass_and_take(PeerNetwork& network, int own_rank, std::span<const int> ranks,
                                    std::string_view label, const std::vector<UniqueFd>& own,
                                    Deadline deadline) {
  const int leader = ranks.front();
  const UniqueFd stream = network.open(leader, label, deadline);
  const std::array<int, kEach> fds{own[0].get(), own[1].get()};
  try {
    try {
      send_descriptors(stream.get(), fds, leader, deadline);
    } catch (const Error& error) {
      // If the leader has left, it may have sent its error before, which is received below.
      if (error.code() != Errc::peer_lost) throw;
    }
    std::vector<UniqueFd> all =
        receive_descriptors(stream.get(), kEach * ranks.size(), leader, deadline + kAnswerTime);
    send_descriptors(stream.get(), std::span(fds).first(1), leader, deadline + kAnswerTime);
    return all;
  } catch (const Error& error) {
    send_error(stream.get(), with_culprit(error, own_rank));
    throw;
  }
}

}  // namespace

std::vector<HostDescriptors> exchange_on_host(Session& session, std::span<const int> ranks,
                                              std::string_view label, int memory) {
  const int rank = session.topology().rank;
  PeerNetwork& network = session.network();
  const HostIdentity& here = network.hosts()[static_cast<std::size_t>(rank)];
  for (const int other : ranks) {
    if (here.same_host(network.hosts()[static_cast<std::size_t>(other)])) continue;
    throw Error(Errc::unsupported, fmt::format("shared memory: rank {} is on another host", other));
  }

  StreamPair pair = make_stream_pair();
  std::vector<UniqueFd> all;
  all.emplace_back(::fcntl(memory, F_DUPFD_CLOEXEC, 0));
  if (!all.front()) {
    throw Error(Errc::resource, "no descriptor left for shared memory (ulimit -n)");
  }
  all.push_back(std::move(pair.others));
  const Deadline deadline = session.start_deadline();
  all = rank == ranks.front() ? gather_and_pass(network, ranks, label, std::move(all), deadline)
                              : pass_and_take(network, rank, ranks, label, all, deadline);

  std::vector<HostDescriptors> peers(static_cast<std::size_t>(session.topology().size));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    HostDescriptors& peer = peers[static_cast<std::size_t>(ranks[i])];
    if (ranks[i] == rank) {
      peer.stream = std::move(pair.own);
    } else {
      peer = {std::move(all[kEach * i + 1]), std::move(all[kEach * i])};
    }
  }
  return peers;
}

void refuse_exchange(Session& session, std::span<const int> ranks, std::string_view label,
                     const Error& error) {
  const int rank = session.topology().rank;
  const bool leads = rank == ranks.front();
  open_and_send_error(session.network(), leads ? ranks.subspan(1) : ranks.first(1), label,
                      with_culprit(error, rank),
                      leads ? Clock::now() + kAnswerTime : session.start_deadline());
}

std::vector<int> ranks_here(const Topology& topology) {
  const int host = topology.host_of[static_cast<std::size_t>(topology.rank)];
  std::vector<int> ranks;
  for (int rank = 0; rank < topology.size; ++rank) {
    if (topology.host_of[static_cast<std::size_t>(rank)] == host) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace hvd::detail
