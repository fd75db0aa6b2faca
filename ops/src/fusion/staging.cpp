#include "fusion/staging.hpp"

#include "fusion/blocks.hpp"

namespace hvd::detail {

std::int64_t total_count(std::span<const TensorSlice> tensors) noexcept {
  std::int64_t count = 0;
  for (const TensorSlice& tensor : tensors) count += tensor.count;
  return count;
}

void staged_broadcast(const BroadcastCall& call, int rank, const Staging& staging,
                      const std::function<void(std::byte* data, std::size_t size)>& move) {
  const std::size_t total = bytes_of(total_count(call.tensors), call.dtype);
  if (total == 0) return;
  const bool root = rank == call.root;
  if (call.tensors.size() == 1 && staging.lone_in_place) {
    const TensorSlice& tensor = call.tensors.front();
    if (root) staging.copy(tensor.output, tensor.input, total);
    return move(tensor.output, total);
  }
  std::byte* const fused = staging.reserve(total);
  if (root) {
    for_each_fused(call.tensors, call.dtype, fused, [&](const auto& tensor, auto* at, auto bytes) {
      staging.copy(at, tensor.input, bytes);
      staging.copy(tensor.output, tensor.input, bytes);
    });
  }
  move(fused, total);
  if (root) return;
  for_each_fused(call.tensors, call.dtype, fused, [&](const auto& tensor, auto* at, auto bytes) {
    staging.copy(tensor.output, at, bytes);
  });
}

void staged_allgather(
    const AllgatherCall& call, int rank, int ranks, const Staging& staging,
    const std::function<void(std::byte* data, std::span<const std::int64_t> bounds)>& move) {
  const GatherBlocks blocks(call, ranks);
  if (blocks.total() == 0) return;
  const bool in_place = call.tensors.size() == 1 && staging.lone_in_place;
  std::byte* const data = in_place ? call.tensors.front().output
                                   : staging.reserve(static_cast<std::size_t>(blocks.total()));
  blocks.pack(call, rank, data, staging.copy);
  move(data, blocks.bounds());
  if (!in_place) blocks.unpack(call, data, staging.copy);
}

}  // namespace hvd::detail
