// Passes the descriptors of shared memory between the ranks of a host, over Unix streams
// (SCM_RIGHTS).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/types.hpp>

namespace hvd {
class Session;
struct Topology;
}  // namespace hvd

namespace hvd::detail {

/// Sends descriptors, which one call of `receive_descriptors` receives. Both throw Errc::timeout or
/// Errc::peer_lost naming `peer`, the rank at the other end. This one throws Errc::resource if this
/// user's processes still have too many descriptors in flight at the deadline.
void send_descriptors(int stream, std::span<const int> fds, int peer, Deadline deadline);
/// Receives exactly `count` descriptors. If another number arrives, they are closed and it throws
/// Errc::protocol. It throws Errc::resource if this process cannot hold so many, and the error that
/// the other end passed with `send_error`.
[[nodiscard]] std::vector<UniqueFd> receive_descriptors(int stream, std::size_t count, int peer,
                                                        Deadline deadline);
/// Sends an error instead of descriptors, if the stream has room for it now.
void send_error(int stream, const Error& error) noexcept;

/// Holds the descriptors that a rank has of another one.
struct HostDescriptors {
  UniqueFd stream;  ///< leads to the peer's own `stream`, and ends with the peer
  UniqueFd memory;  ///< the peer's memory, which has not been checked yet
};

/// Exchanges the descriptors `memory` of all `ranks`, this one among them. Collective, with the
/// same `label`. Every rank passes its descriptor to the first rank, the local leader, which passes
/// all of them to all ranks: so each rank except the leader opens one connection, however many
/// ranks there are. Returns the descriptors by rank of the session, empty for ranks that are not
/// among `ranks`. For this rank itself `memory` is empty, and `stream` is the end that corresponds
/// to the others' streams to this rank: keep it open for as long as they may need this rank; it
/// receives what they send. Throws Errc::unsupported naming a rank of another host, and by the
/// session's start deadline timeout, peer_lost, resource or protocol naming the rank.
[[nodiscard]] std::vector<HostDescriptors> exchange_on_host(Session& session,
                                                            std::span<const int> ranks,
                                                            std::string_view label, int memory);

/// Takes the place of `exchange_on_host` on a rank that cannot take part: the other ranks throw
/// `error`, with this rank as the culprit if it is Errc::resource and names none.
void refuse_exchange(Session& session, std::span<const int> ranks, std::string_view label,
                     const Error& error);

/// Returns the ranks of this rank's host, ascending.
[[nodiscard]] std::vector<int> ranks_here(const Topology& topology);

}  // namespace hvd::detail
