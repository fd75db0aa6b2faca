// Lists the ranks of a context.
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

namespace hvd {

/// Returns 0 to `size - 1`.
[[nodiscard]] inline std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace hvd
