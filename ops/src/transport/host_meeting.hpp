// How the ranks of a host hand each other the memory that they share.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <hvd/core/fd.hpp>

namespace hvd {

class Session;
struct Topology;

/// What a rank holds of another one.
struct HostPeer {
  UniqueFd stream;  ///< carries nothing that anybody waits for; its end is the peer's end
  UniqueFd memory;  ///< a descriptor of the peer's memory: not looked at yet
};

/// Collective over `ranks`, this one among them, with the same `label`: opens a Unix stream to each
/// and passes the descriptor `memory` over it. By rank of the session; nothing at this rank's own
/// place and those of others. Throws
/// Errc::unsupported naming a rank of another host, and by the session's start deadline timeout,
/// peer_lost or protocol naming the rank.
[[nodiscard]] std::vector<HostPeer> meet_on_host(Session& session, std::span<const int> ranks,
                                                 std::string_view label, int memory);

/// The ranks of this rank's host, ascending.
[[nodiscard]] std::vector<int> ranks_here(const Topology& topology);

/// Whether the other end of a stream is gone; takes nothing from it.
[[nodiscard]] bool stream_ended(int stream) noexcept;

}  // namespace hvd
