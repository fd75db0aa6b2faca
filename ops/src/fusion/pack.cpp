#include "fusion/pack.hpp"

#include <cstring>

#include "reduce/integer_mean.hpp"
#include "reduce/scale.hpp"

namespace hvd {

Accumulator Accumulator::of(const AllreduceCall& call) noexcept {
  if (call.op == ReduceOp::average && is_integer(call.dtype)) {
    return {DType::i64, mean_lanes(call.dtype), true};
  }
  return {call.dtype, 1, false};
}

FusionLayout layout_of(std::span<const TensorSlice> tensors, int ranks) {
  std::vector<std::int64_t> counts;
  counts.reserve(tensors.size());
  for (const TensorSlice& tensor : tensors) counts.push_back(tensor.count);
  return FusionLayout(std::move(counts), ranks);
}

void pack(const AllreduceCall& call, const FusionLayout& layout, const Accumulator& accumulator,
          int ranks, std::byte* buffer) {
  const std::size_t size = size_of(call.dtype);
  const std::size_t fused_size = accumulator.element_size();
  layout.for_each_part([&](std::size_t tensor, Range part, std::int64_t offset) {
    const std::byte* from =
        call.tensors[tensor].input + static_cast<std::size_t>(part.begin) * size;
    std::byte* to = buffer + static_cast<std::size_t>(offset) * fused_size;
    if (accumulator.widened) {
      widen_for_mean(call.dtype, reinterpret_cast<std::int64_t*>(to), from, part.size(), ranks,
                     call.prescale);
    } else {
      scale(call.dtype, to, from, part.size(), call.prescale);
    }
  });
}

void unpack(const AllreduceCall& call, const FusionLayout& layout, const Accumulator& accumulator,
            int ranks, const std::byte* buffer) {
  const std::size_t size = size_of(call.dtype);
  const std::size_t fused_size = accumulator.element_size();
  layout.for_each_part([&](std::size_t tensor, Range part, std::int64_t offset) {
    const std::byte* from = buffer + static_cast<std::size_t>(offset) * fused_size;
    std::byte* to = call.tensors[tensor].output + static_cast<std::size_t>(part.begin) * size;
    if (accumulator.widened) {
      narrow_mean(call.dtype, to, reinterpret_cast<const std::int64_t*>(from), part.size(), ranks,
                  call.postscale);
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(part.size()) * size);
    }
  });
}

}  // namespace hvd
