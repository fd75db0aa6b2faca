// What one rank has of the shared memory of its host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <hvd/core/fd.hpp>

#include "host/group.hpp"
#include "host/segment.hpp"
#include "shm/wait.hpp"
#include "transport/failure.hpp"

namespace hvd {

class Session;

/// The segments of the host's ranks, a stream to each of them, and the groups that this rank is in.
/// The host backend, its subsets and the ready fence share it; one of them works at a time, and the
/// first error of one is that of all.
struct HostShared {
  struct Peer {
    HostSegment segment;  ///< nothing at this rank's own place
    UniqueFd stream;      ///< at this rank's own place: the end that the others see as its life
  };

  HostShared(std::shared_ptr<const HostSegment> own, std::vector<Peer> peers, int rank, int spins);

  /// The group of these ranks of the host, ascending, this one among them. The first time this
  /// makes this rank's block and publishes it; it does not wait for the others (see
  /// HostGroup::attach). Throws Errc::resource.
  [[nodiscard]] const std::shared_ptr<HostGroup>& group(std::span<const int> ranks);
  /// The group of all `ranks` of the host, whose blocks every segment has from the start. Once,
  /// before any other.
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
  /// Groups stay, since a member may still read a block when another is through.
  std::map<std::vector<int>, std::shared_ptr<HostGroup>, ByRanks> groups;
  std::size_t blocks = 0;  ///< that this rank has made for process sets

 private:
  /// What this rank sees of `rank`, whose block is not known.
  [[nodiscard]] HostMember member(int rank) const;
};

/// Makes this rank's segment, with `arena` bytes of arena, passes it to the other ranks of the
/// host, and maps theirs. Collective over the host. Throws Errc::resource saying what to do, and
/// what `exchange_on_host` does.
[[nodiscard]] std::shared_ptr<HostShared> share_host_memory(Session& session, std::size_t arena);

}  // namespace hvd
