#include "transport/host_meeting.hpp"

#include <cerrno>
#include <cstddef>

#include <fmt/format.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>
#include <hvd/core/session.hpp>

#include "transport/fd_passing.hpp"

namespace hvd {

std::vector<HostPeer> meet_on_host(Session& session, std::span<const int> ranks,
                                   std::string_view label, int memory) {
  const int rank = session.topology().rank;
  const int size = session.topology().size;
  const Deadline deadline = session.start_deadline();
  PeerNetwork& network = session.network();
  const HostIdentity& here = network.hosts()[static_cast<std::size_t>(rank)];

  std::vector<HostPeer> peers(static_cast<std::size_t>(size));
  const auto for_each_peer = [&](auto fn) {
    for (const int other : ranks) {
      if (other != rank) fn(other, peers[static_cast<std::size_t>(other)]);
    }
  };
  for_each_peer([&](int other, HostPeer& peer) {
    if (!here.same_host(network.hosts()[static_cast<std::size_t>(other)])) {
      throw Error(Errc::unsupported,
                  fmt::format("shared memory: rank {} is on another host", other));
    }
    peer.stream = network.open(other, label, deadline);
  });
  for_each_peer([&](int other, HostPeer& peer) {
    send_descriptor(peer.stream.get(), memory, other, deadline);
  });
  for_each_peer([&](int other, HostPeer& peer) {
    peer.memory = receive_descriptor(peer.stream.get(), other, deadline);
  });
  return peers;
}

std::vector<int> ranks_here(const Topology& topology) {
  const int host = topology.host_of[static_cast<std::size_t>(topology.rank)];
  std::vector<int> ranks;
  for (int rank = 0; rank < topology.size; ++rank) {
    if (topology.host_of[static_cast<std::size_t>(rank)] == host) ranks.push_back(rank);
  }
  return ranks;
}

bool stream_ended(int stream) noexcept {
  std::byte byte{};
  const ssize_t got = ::recv(stream, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

}  // namespace hvd
