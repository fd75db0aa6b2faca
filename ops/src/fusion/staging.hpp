// The part of a fused broadcast and a fused allgather that is the same in every backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <hvd/core/backend.hpp>

#include "fusion/copy_bytes.hpp"

namespace hvd {

/// How a backend fuses tensors.
struct Staging {
  ByteCopy copy;
  std::function<std::byte*(std::size_t size)> reserve;  ///< the fused buffer
  bool lone_in_place = true;                            ///< a lone tensor may stay where it is
};

/// `move` brings `size` bytes at the root's `data` to the others'. It is called unless there are
/// none.
void staged_broadcast(const BroadcastCall& call, int rank, const Staging& staging,
                      const std::function<void(std::byte* data, std::size_t size)>& move);

/// `move` brings rank r's [bounds[r], bounds[r+1]) bytes of `data` to the others'. It is called
/// unless there are none.
void staged_allgather(
    const AllgatherCall& call, int rank, int ranks, const Staging& staging,
    const std::function<void(std::byte* data, std::span<const std::int64_t> bounds)>& move);

/// fn(tensor, its place, bytes): tensors one after the other in `buffer`, empty ones left out.
template <class Fn>
void for_each_place(std::span<const TensorSlice> tensors, DType dtype, std::byte* buffer, Fn fn) {
  for (const TensorSlice& tensor : tensors) {
    const std::size_t bytes = static_cast<std::size_t>(tensor.count) * size_of(dtype);
    if (bytes > 0) fn(tensor, buffer, bytes);
    buffer += bytes;
  }
}

/// Elements of all tensors.
[[nodiscard]] std::int64_t total_count(std::span<const TensorSlice> tensors) noexcept;

}  // namespace hvd
