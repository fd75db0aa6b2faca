#include "hierarchy/rounds.hpp"

#include "fusion/buffer.hpp"
#include "fusion/layout.hpp"

namespace hvd::detail {

std::vector<Round> plan_rounds(std::span<const TensorSlice> tensors, std::int64_t most) {
  std::vector<Round> rounds;
  std::int64_t room = 0;  // elements that the last round may still take
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const std::int64_t count = tensors[tensor].count;
    const auto parts = static_cast<int>(count / most + (count % most == 0 ? 0 : 1));
    for (int k = 0; k < parts; ++k) {
      const Range part = part_of(count, k, parts);
      if (part.size() > room) {
        rounds.emplace_back();
        room = most;
      }
      rounds.back().push_back({tensor, part.begin, part.size()});
      room -= part.size();
    }
  }
  return rounds;
}

RoundSlices::RoundSlices(const Lanes& lanes, const Round& round, DType dtype)
    : lanes_(lanes), round_(round), value_(size_of(dtype)) {
  for (const Segment& segment : round_) {
    std::vector<std::int64_t>& counts = counts_.emplace_back();
    for (std::size_t local = 0; local < lanes_.host.size(); ++local) {
      counts.push_back(lanes_.offset(segment.count, lanes_.begin[local + 1]) -
                       lanes_.offset(segment.count, lanes_.begin[local]));
    }
    offsets_.push_back(bytes_);
    bytes_ += FusionBuffer::aligned(bytes(counts[static_cast<std::size_t>(lanes_.local_rank)]));
  }
}

std::vector<ScatterSlice> RoundSlices::contributions(std::span<const TensorSlice> tensors,
                                                     const std::byte* absent,
                                                     std::byte* buffer) const {
  std::vector<ScatterSlice> slices;
  for (std::size_t i = 0; i < round_.size(); ++i) {
    const std::byte* const input = tensors[round_[i].tensor].input;
    slices.push_back(
        {input ? input + bytes(round_[i].begin) : absent, buffer + offsets_[i], counts_[i]});
  }
  return slices;
}

std::vector<TensorSlice> RoundSlices::lane(std::byte* buffer, int n) const {
  std::vector<TensorSlice> slices;
  const int lane = lanes_.first() + n;
  for (std::size_t i = 0; i < round_.size(); ++i) {
    const std::int64_t elements = round_[i].count;
    const std::int64_t begin = lanes_.offset(elements, lane);
    std::byte* const data =
        buffer + offsets_[i] + bytes(begin - lanes_.offset(elements, lanes_.first()));
    slices.push_back({data, data, lanes_.offset(elements, lane + 1) - begin});
  }
  return slices;
}

std::vector<GatherSlice> RoundSlices::results(std::span<const TensorSlice> tensors,
                                              const std::byte* buffer, std::byte* discarded) const {
  std::vector<GatherSlice> slices;
  for (std::size_t i = 0; i < round_.size(); ++i) {
    std::byte* const output = tensors[round_[i].tensor].output;
    slices.push_back(
        {buffer + offsets_[i], output ? output + bytes(round_[i].begin) : discarded, counts_[i]});
  }
  return slices;
}

}  // namespace hvd::detail
