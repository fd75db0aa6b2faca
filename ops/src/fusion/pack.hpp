// Between the tensors of a call and the fused buffer.
#pragma once

#include <cstdint>

#include <hvd/core/backend.hpp>

#include "fusion/layout.hpp"

namespace hvd {

/// How the elements of an allreduce look while they are being summed.
struct Accumulator {
  DType dtype = DType::f32;
  int lanes = 1;         ///< values of `dtype` per element of the tensor
  bool widened = false;  ///< an integer mean: see reduce/integer_mean.hpp

  [[nodiscard]] static Accumulator of(const AllreduceCall& call) noexcept;
  [[nodiscard]] std::size_t element_size() const noexcept {
    return size_of(dtype) * static_cast<std::size_t>(lanes);
  }
};

/// The layout of a call's tensors over `ranks` chunks.
[[nodiscard]] FusionLayout layout_of(std::span<const TensorSlice> tensors, int ranks);

/// Inputs times prescale into `buffer`.
void pack(const AllreduceCall& call, const FusionLayout& layout, const Accumulator& accumulator,
          int ranks, std::byte* buffer);
/// Results out of `buffer`; a widened mean is divided and scaled on the way.
void unpack(const AllreduceCall& call, const FusionLayout& layout, const Accumulator& accumulator,
            int ranks, const std::byte* buffer);

}  // namespace hvd
