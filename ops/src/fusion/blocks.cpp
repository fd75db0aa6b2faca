#include "fusion/blocks.hpp"

namespace hvd::detail {

GatherBlocks::GatherBlocks(const AllgatherCall& call, int ranks)
    : element_(static_cast<std::int64_t>(size_of(call.dtype))),
      bounds_(static_cast<std::size_t>(ranks) + 1, 0) {
  for (std::size_t rank = 0; rank + 1 < bounds_.size(); ++rank) {
    bounds_[rank + 1] = bounds_[rank];
    for (const GatherSlice& tensor : call.tensors) {
      bounds_[rank + 1] += tensor.counts[rank] * element_;
    }
  }
}

void GatherBlocks::pack(const AllgatherCall& call, int rank, std::byte* data,
                        const ByteCopy& copy) const {
  const auto me = static_cast<std::size_t>(rank);
  std::byte* to = data + bounds_[me];
  for (const GatherSlice& tensor : call.tensors) {
    const auto bytes = static_cast<std::size_t>(tensor.counts[me] * element_);
    copy(to, tensor.input, bytes);
    to += bytes;
  }
}

void GatherBlocks::unpack(const AllgatherCall& call, const std::byte* data,
                          const ByteCopy& copy) const {
  std::vector<std::int64_t> filled(call.tensors.size(), 0);
  const std::byte* from = data;
  for (std::size_t rank = 0; rank + 1 < bounds_.size(); ++rank) {
    for (std::size_t t = 0; t < call.tensors.size(); ++t) {
      const GatherSlice& tensor = call.tensors[t];
      const std::int64_t bytes = tensor.counts[rank] * element_;
      if (bytes == 0) continue;
      copy(tensor.output + filled[t], from, static_cast<std::size_t>(bytes));
      filled[t] += bytes;
      from += bytes;
    }
  }
}

ScatterBlocks::ScatterBlocks(std::span<const ScatterSlice> tensors, int ranks)
    : tensors_(tensors), bounds_(static_cast<std::size_t>(ranks) + 1, 0) {
  for (std::size_t rank = 0; rank + 1 < bounds_.size(); ++rank) {
    bounds_[rank + 1] = bounds_[rank];
    for (const ScatterSlice& tensor : tensors_) bounds_[rank + 1] += tensor.counts[rank];
  }
}

}  // namespace hvd::detail
