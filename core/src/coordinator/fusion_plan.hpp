// Which ready tensors share one collective. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include <hvd/core/request.hpp>

namespace hvd {

/// An operation that every rank of its process set has submitted alike.
struct ReadyTensor {
  Request request;                              ///< as the first member asked for it
  std::vector<std::vector<std::int64_t>> rows;  ///< by member. Allgather: {rows}; alltoall: splits
  std::vector<std::uint32_t> segments;  ///< by member, see Announcement; empty if one joined
  int contributors = 0;                 ///< members that submitted it; 0: all
};

/// Bytes that an operation moves: those of its shape; an allgather's, of all ranks.
[[nodiscard]] std::size_t bytes_of(const ReadyTensor& tensor) noexcept;

/// Same kind, process set, dtype, device kind, reduce op, scales, root and contributors, and a kind
/// that fuses.
[[nodiscard]] bool may_share(const ReadyTensor& a, const ReadyTensor& b) noexcept;

/// Removes from `ready` the oldest tensor and those behind it that may run with it, in order,
/// together at most `threshold` bytes. A tensor that does not fit is passed over. `ready` is not
/// empty.
[[nodiscard]] std::vector<ReadyTensor> take_fused(std::deque<ReadyTensor>& ready,
                                                  std::size_t threshold);

}  // namespace hvd
