#include "group/subset.hpp"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd {

int rank_in_subset(std::span<const int> ranks, int rank, int size) {
  const bool ascending =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  if (ranks.empty() || !ascending || ranks.front() < 0 || ranks.back() >= size) {
    throw Error(Errc::invalid_argument,
                fmt::format("a subset needs ascending ranks below {}", size));
  }
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end()) {
    throw Error(Errc::invalid_argument, fmt::format("rank {} is not in the subset", rank));
  }
  return static_cast<int>(found - ranks.begin());
}

}  // namespace hvd
