// Some of a group's ranks.
#pragma once

#include <span>

namespace hvd {

/// The rank that `rank` has in the subset. Throws Errc::invalid_argument unless `ranks` are
/// ascending, below `size`, and `rank` among them.
[[nodiscard]] int rank_in_subset(std::span<const int> ranks, int rank, int size);

}  // namespace hvd
