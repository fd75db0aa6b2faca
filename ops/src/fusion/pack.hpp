// Copies between the tensors of a reduction and the fused buffer.
#pragma once

#include <span>

#include <hvd/core/internal/backend.hpp>

#include "fusion/accumulator.hpp"
#include "fusion/blocks.hpp"
#include "fusion/layout.hpp"

namespace hvd::detail {

/// Returns the layout of tensors over `ranks` chunks.
[[nodiscard]] FusionLayout layout_of(std::span<const TensorSlice> tensors, int ranks);

/// Tells whether a call is one tensor with memory of its own, which needs no fused buffer.
[[nodiscard]] bool is_lone(std::span<const TensorSlice> tensors) noexcept;

/// Loads the inputs into `buffer`.
void pack(std::span<const TensorSlice> tensors, const FusionLayout& layout,
          const Accumulator& accumulator, std::byte* buffer);
/// Unloads the finished results from `buffer`.
void unpack(std::span<const TensorSlice> tensors, const FusionLayout& layout,
            const Accumulator& accumulator, const std::byte* buffer);

void pack(std::span<const ScatterSlice> tensors, const ScatterBlocks& blocks,
          const Accumulator& accumulator, std::byte* buffer);
/// Unloads the finished results from this rank's block.
void unpack(std::span<const ScatterSlice> tensors, const ScatterBlocks& blocks, int rank,
            const Accumulator& accumulator, const std::byte* block);

/// Runs `body` and reports to the observer of a call how long it took. `observer` may be null; then
/// no clock is read.
template <class Body>
void observed(CallObserver* observer,
              void (CallObserver::*report)(Clock::time_point, Clock::time_point), Body body) {
  if (observer == nullptr) return body();
  const Clock::time_point began = Clock::now();
  body();
  (observer->*report)(began, Clock::now());
}

}  // namespace hvd::detail
