// Holds the shared memory of a host, as one of its ranks sees it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <hvd/core/internal/fd.hpp>

#include "host/group.hpp"
#include "host/segment.hpp"
#include "shm/wait.hpp"
#include "transport/failure.hpp"

namespace hvd {
class Session;
}

namespace hvd::detail {

/// Holds the segments of the host's ranks, a stream to each of them, and the groups that this rank
/// is in. The host backend, its subsets and the ready fence share it; one of them works at a time,
/// and the first error of one is the error of all.
struct HostShared {
  struct Peer {
    HostSegment segment;  ///< empty at this rank's own index
    UniqueFd stream;      ///< ends with the peer; at this rank's own index it is the rank's own end
  };

  HostShared(std::shared_ptr<const HostSegment> own, std::vector<Peer> peers, int rank, int spins);

  /// Returns the group of these ranks of the host, which are ascending and include this one. The
  /// first call makes this rank's block and publishes it; it does not wait for the others (see
  /// HostGroup::attach). Throws Errc::resource.
  [[nodiscard]] const std::shared_ptr<HostGroup>& group(std::span<const int> ranks);
  /// Makes the group of all `ranks` of the host, whose blocks every segment has from the start. The
  /// caller calls it once, before `group`.
  const std::shared_ptr<HostGroup>& group_of_all(std::span<const int> ranks);

  struct ByRanks {
    using is_transparent = void;
    bool operator()(std::span<const int> a, std::span<const int> b) const noexcept {
      return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
    }
  };

  int rank;
  std::shared_ptr<const HostSegment> own;
  std::vector<Peer> peers;  ///< by rank
  Failure failure;
  ShmWait wait;
  /// Groups are kept, since a member may still read a block when another has ended its operation.
  std::map<std::vector<int>, std::shared_ptr<HostGroup>, ByRanks> groups;
  std::size_t blocks = 0;  ///< number of blocks that this rank has made for process sets

 private:
  /// Returns what this rank knows of `rank` before it knows that rank's block.
  [[nodiscard]] HostMember member(int rank) const;
};

/// Makes this rank's segment, with `arena` bytes of arena, passes it to the other ranks of the
/// host, and maps theirs. Collective over the host. Throws Errc::resource with advice, and the
/// errors of `exchange_on_host`.
[[nodiscard]] std::shared_ptr<HostShared> share_host_memory(Session& session, std::size_t arena);

}  // namespace hvd::detail
