// Decides which ready tensors share one collective, and how large buckets may be. It does no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include <hvd/core/request.hpp>

namespace hvd::detail {

struct BucketSizes {
  std::size_t threshold = 0;  ///< bytes of one collective; 0: every tensor alone
  std::size_t edge = 0;  ///< bytes of the first and the last of several buckets; 0: like the others

  friend bool operator==(const BucketSizes&, const BucketSizes&) = default;
};

/// Returns the sizes that are used unless better ones were measured.
[[nodiscard]] constexpr BucketSizes usual_sizes(std::size_t threshold) noexcept {
  return {threshold, threshold / 16};
}

/// Describes an operation that every rank of its process set has submitted alike.
struct ReadyTensor {
  Request request;                              ///< as the first member asked for it
  std::vector<std::vector<std::int64_t>> rows;  ///< by member. Allgather: {rows}; alltoall: splits
  std::vector<std::uint32_t> segments;  ///< by member, see Announcement; empty if one joined
  int contributors = 0;                 ///< members that submitted it; 0: all
};

/// Returns the bytes that an operation moves: those of its shape, and for an allgather those of all
/// ranks together.
[[nodiscard]] std::size_t bytes_of(const ReadyTensor& tensor) noexcept;

/// Tells whether two operations may be in one call: the kind fuses, and kind, process set, dtype,
/// device kind, reduce op, scales and root are the same.
[[nodiscard]] bool may_share(const Request& a, const Request& b) noexcept;
/// Does the same for tensors, whose contributors must be the same too.
[[nodiscard]] bool may_share(const ReadyTensor& a, const ReadyTensor& b) noexcept;

/// Removes from `ready`, which is not empty, the oldest tensor and those behind it that may run
/// with it, in order, of together at most `threshold` bytes. A tensor that does not fit is passed
/// over.
[[nodiscard]] std::vector<ReadyTensor> take_fused(std::deque<ReadyTensor>& ready,
                                                  std::size_t threshold);

}  // namespace hvd::detail
