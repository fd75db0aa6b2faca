#include "hierarchy/rounds.hpp"

#include "fusion/layout.hpp"

namespace hvd {

std::vector<Round> plan_rounds(std::span<const TensorSlice> tensors, std::int64_t most) {
  std::vector<Round> rounds;
  std::int64_t room = 0;  // in the last round, elements
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const std::int64_t count = tensors[tensor].count;
    const int parts = static_cast<int>((count + most - 1) / most);
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

}  // namespace hvd
