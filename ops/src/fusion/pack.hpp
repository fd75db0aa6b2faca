// Between the tensors of a reduction and the fused buffer.
#pragma once

#include <span>

#include <hvd/core/backend.hpp>

#include "fusion/accumulator.hpp"
#include "fusion/layout.hpp"
#include "fusion/scatter_blocks.hpp"

namespace hvd {

/// The layout of tensors over `ranks` chunks.
[[nodiscard]] FusionLayout layout_of(std::span<const TensorSlice> tensors, int ranks);

/// Whether a call is one tensor with memory of its own, which needs no fused buffer.
[[nodiscard]] bool is_lone(std::span<const TensorSlice> tensors) noexcept;

/// Inputs, loaded, into `buffer`.
void pack(std::span<const TensorSlice> tensors, const FusionLayout& layout,
          const Accumulator& accumulator, std::byte* buffer);
/// Finished results out of `buffer`.
void unpack(std::span<const TensorSlice> tensors, const FusionLayout& layout,
            const Accumulator& accumulator, const std::byte* buffer);

void pack(std::span<const ScatterSlice> tensors, const ScatterBlocks& blocks,
          const Accumulator& accumulator, std::byte* buffer);
/// `block` is this rank's, finished.
void unpack(std::span<const ScatterSlice> tensors, const ScatterBlocks& blocks, int rank,
            const Accumulator& accumulator, const std::byte* block);

}  // namespace hvd
