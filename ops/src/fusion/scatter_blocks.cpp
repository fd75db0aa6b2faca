#include "fusion/scatter_blocks.hpp"

namespace hvd {

ScatterBlocks::ScatterBlocks(std::span<const ScatterSlice> tensors, int ranks)
    : tensors_(tensors), bounds_(static_cast<std::size_t>(ranks) + 1, 0) {
  for (std::size_t rank = 0; rank + 1 < bounds_.size(); ++rank) {
    bounds_[rank + 1] = bounds_[rank];
    for (const ScatterSlice& tensor : tensors_) bounds_[rank + 1] += tensor.counts[rank];
  }
}

}  // namespace hvd
