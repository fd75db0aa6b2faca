#include "fusion/pack.hpp"

#include <utility>

#include "fusion/address.hpp"

namespace hvd::detail {
namespace {

template <class Tensors, class Layout>
void load_parts(const Tensors& tensors, const Layout& layout, const Accumulator& accumulator,
                std::byte* buffer) {
  layout.for_each_part([&](std::size_t tensor, Range part, std::int64_t offset) {
    accumulator.load(element(buffer, offset, accumulator.element_size()),
                     element(tensors[tensor].input, part.begin, accumulator.given_size()),
                     part.size());
  });
}

}  // namespace

FusionLayout layout_of(std::span<const TensorSlice> tensors, int ranks) {
  std::vector<std::int64_t> counts;
  counts.reserve(tensors.size());
  for (const TensorSlice& tensor : tensors) counts.push_back(tensor.count);
  return FusionLayout(std::move(counts), ranks);
}

bool is_lone(std::span<const TensorSlice> tensors) noexcept {
  return tensors.size() == 1 && tensors.front().input != nullptr &&
         tensors.front().output != nullptr;
}

void pack(std::span<const TensorSlice> tensors, const FusionLayout& layout,
          const Accumulator& accumulator, std::byte* buffer) {
  load_parts(tensors, layout, accumulator, buffer);
}

void pack(std::span<const ScatterSlice> tensors, const ScatterBlocks& blocks,
          const Accumulator& accumulator, std::byte* buffer) {
  load_parts(tensors, blocks, accumulator, buffer);
}

void unpack(std::span<const TensorSlice> tensors, const FusionLayout& layout,
            const Accumulator& accumulator, const std::byte* buffer) {
  layout.for_each_part([&](std::size_t tensor, Range part, std::int64_t offset) {
    accumulator.unload(element(tensors[tensor].output, part.begin, accumulator.given_size()),
                       element(buffer, offset, accumulator.element_size()), part.size());
  });
}

void unpack(std::span<const ScatterSlice> tensors, const ScatterBlocks& blocks, int rank,
            const Accumulator& accumulator, const std::byte* block) {
  blocks.for_each_result(rank, [&](std::size_t tensor, std::int64_t offset, std::int64_t count) {
    accumulator.unload(tensors[tensor].output, element(block, offset, accumulator.element_size()),
                       count);
  });
}

}  // namespace hvd::detail
