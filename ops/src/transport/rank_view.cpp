#include "transport/rank_view.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {

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

RankView::RankView(Transport& whole, std::vector<int> ranks)
    : whole_(whole),
      ranks_(std::move(ranks)),
      rank_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), whole.rank()) -
                             ranks_.begin())) {}

void RankView::exchange(const Outgoing& out, const Incoming& in, Deadline deadline) {
  Incoming from = in;
  from.peer = translated(in.peer);
  whole_.exchange({.peer = translated(out.peer), .bytes = out.bytes}, from, deadline);
}

}  // namespace hvd::detail
