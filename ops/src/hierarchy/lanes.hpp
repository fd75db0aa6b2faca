// Tells which rank reduces which part of a tensor across hosts. The functions have no side effects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Describes the lanes of a tensor as one rank sees them; see docs/internals/hierarchy.md.
struct Lanes {
  int count = 1;                         ///< lanes of a tensor
  std::vector<int> host;                 ///< the ranks of this host, ascending
  int local_rank = 0;                    ///< index of this rank in `host`
  std::vector<int> begin;                ///< by local rank: its first lane; then `count`
  std::vector<std::vector<int>> owners;  ///< by lane of this rank: one rank per host, ascending

  [[nodiscard]] int first() const { return begin[static_cast<std::size_t>(local_rank)]; }
  /// Returns the element with which a lane begins in a tensor of `elements`, or for `lane == count`
  /// the end of the last lane.
  [[nodiscard]] std::int64_t offset(std::int64_t elements, int lane) const {
    // This does not overflow where elements · lane would.
    return elements / count * lane + elements % count * lane / count;
  }
};

/// Cuts a tensor into as many lanes as the largest host has ranks. On a host of L ranks, local rank
/// l owns the lanes from count·l/L up to count·(l+1)/L. `host_of` is the host of each rank; hosts
/// are numbered in the order of their first ranks.
[[nodiscard]] Lanes plan_lanes(std::span<const int> host_of, int rank);

/// Returns the hosts of these ascending ranks, numbered anew in the order in which they occur.
[[nodiscard]] std::vector<int> hosts_among(std::span<const int> host_of,
                                           std::span<const int> ranks);

/// Describes hosts with equally many ranks and consecutive numbers on each: rank `host · each +
/// local rank`. The ranks with the same local rank form a lane.
struct EvenHosts {
  int hosts = 1;
  int each = 1;

  /// Returns nothing when the ranks are not distributed like that.
  [[nodiscard]] static std::optional<EvenHosts> of(std::span<const int> host_of);
};

/// Describes the parts of all tensors of an allgather or a reducescatter that a rank exchanges with
/// the ranks of its lane. They lie in a buffer, tensor after tensor, host after host.
class LaneParts {
 public:
  /// `counts` are the elements by rank of each tensor; they outlive this object.
  LaneParts(const EvenHosts& shape, int rank, std::span<const std::span<const std::int64_t>> counts,
            DType dtype);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Returns the number of elements of a tensor by host.
  [[nodiscard]] std::span<const std::int64_t> by_host(std::size_t tensor) const {
    return tensors_[tensor].counts;
  }
  /// Returns the offset of a tensor's parts in the buffer, in bytes.
  [[nodiscard]] std::size_t offset(std::size_t tensor) const { return tensors_[tensor].offset; }

  /// Describes the part of a tensor that the ranks of a host have.
  struct Piece {
    std::size_t tensor = 0;
    std::size_t in_tensor = 0;             ///< offset in bytes
    std::size_t in_buffer = 0;             ///< offset of this rank's lane in bytes
    std::span<const std::int64_t> counts;  ///< by local rank
  };
  [[nodiscard]] std::span<const Piece> pieces() const noexcept { return pieces_; }

 private:
  struct Tensor {
    std::size_t offset = 0;
    std::vector<std::int64_t> counts;
  };
  std::vector<Tensor> tensors_;
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;
};

}  // namespace hvd::detail
