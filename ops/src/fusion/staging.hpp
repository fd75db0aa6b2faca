// Implements the steps of a fused broadcast and a fused allgather that are the same in every
// backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <hvd/core/internal/backend.hpp>

#include "fusion/blocks.hpp"

namespace hvd::detail {

/// Describes how a backend fuses tensors.
struct Staging {
  ByteCopy copy;
  std::function<std::byte*(std::size_t size)> reserve;  ///< the fused buffer
  bool lone_in_place = true;                            ///< a single tensor needs no fused buffer
};

/// Broadcasts the tensors of a call. `move` sends `size` bytes from the root's `data` to the
/// others'; it is not called for 0 bytes.
void staged_broadcast(const BroadcastCall& call, int rank, const Staging& staging,
                      const std::function<void(std::byte* data, std::size_t size)>& move);

/// Gathers the tensors of a call. `move` sends rank r's bytes [bounds[r], bounds[r+1]) of `data` to
/// the others; it is not called for 0 bytes.
void staged_allgather(
    const AllgatherCall& call, int rank, int ranks, const Staging& staging,
    const std::function<void(std::byte* data, std::span<const std::int64_t> bounds)>& move);

/// Calls fn(tensor, its memory in `buffer`, bytes) for tensors that lie there one after the other.
/// Empty ones are left out.
template <class Fn>
void for_each_fused(std::span<const TensorSlice> tensors, DType dtype, std::byte* buffer, Fn fn) {
  for (const TensorSlice& tensor : tensors) {
    const std::size_t bytes = bytes_of(tensor.count, dtype);
    if (bytes > 0) fn(tensor, buffer, bytes);
    buffer += bytes;
  }
}

/// Returns the number of elements of all tensors.
[[nodiscard]] std::int64_t total_count(std::span<const TensorSlice> tensors) noexcept;

}  // namespace hvd::detail
