// How the ranks of a host pass each other the descriptors of the memory that they share, over Unix
// streams (SCM_RIGHTS).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/fd.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

class Session;
struct Topology;

/// Both throw Errc::timeout or Errc::peer_lost naming `peer`, the rank at the other end. What is
/// sent with one call is received with one.
void send_descriptors(int stream, std::span<const int> fds, int peer, Deadline deadline);
/// Takes exactly `count` descriptors; anything else that came is closed and Errc::protocol, and
/// more than this process has room for are Errc::resource. Throws what the other end passed with
/// `send_error`.
[[nodiscard]] std::vector<UniqueFd> receive_descriptors(int stream, std::size_t count, int peer,
                                                        Deadline deadline);
/// In place of descriptors, if the other end has room for it now.
void send_error(int stream, const Error& error) noexcept;

/// What a rank holds of another one.
struct HostDescriptors {
  UniqueFd stream;  ///< what is sent here arrives at the peer's own stream; it ends with the peer
  UniqueFd memory;  ///< of the peer's memory, which nobody has looked at yet
};

/// Collective over `ranks`, this one among them, with the same `label`. Every rank passes the
/// descriptor `memory` to the first of them, the local leader, which passes all to all: so each
/// rank but the leader opens one connection, however many they are. By rank of the session; empty
/// at ranks that are not among `ranks`. At this rank's own place `memory` is empty, and `stream` is
/// the end that the others see as this rank's life: it stays open for as long as they may need this
/// rank, and brings what any of them sends. Throws Errc::unsupported naming a rank of another host,
/// and by the session's start deadline timeout, peer_lost, resource or protocol naming the rank.
[[nodiscard]] std::vector<HostDescriptors> exchange_on_host(Session& session,
                                                            std::span<const int> ranks,
                                                            std::string_view label, int memory);

/// The ranks of this rank's host, ascending.
[[nodiscard]] std::vector<int> ranks_here(const Topology& topology);

}  // namespace hvd
