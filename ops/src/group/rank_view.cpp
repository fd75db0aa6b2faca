#include "group/rank_view.hpp"

#include <algorithm>
#include <utility>

#include "group/subset.hpp"

namespace hvd {

RankView::RankView(Transport& whole, std::vector<int> ranks)
    : whole_(whole),
      ranks_(std::move(ranks)),
      rank_(rank_in_subset(ranks_, whole.rank(), whole.size())) {}

RankView::RankView(std::unique_ptr<Transport> whole, std::vector<int> ranks)
    : kept_(std::move(whole)),
      whole_(*kept_),
      ranks_(std::move(ranks)),
      rank_(rank_in_subset(ranks_, whole_.rank(), whole_.size())) {}

std::unique_ptr<RankView> RankView::reordered(Transport& whole, std::vector<int> ranks) {
  const auto found = std::find(ranks.begin(), ranks.end(), whole.rank());
  const auto rank = static_cast<int>(found - ranks.begin());
  return std::unique_ptr<RankView>(new RankView(whole, std::move(ranks), rank));
}

void RankView::exchange(const Outgoing& out, const Incoming& in, Deadline deadline) {
  Incoming from = in;
  from.peer = translated(in.peer);
  whole_.exchange({.peer = translated(out.peer), .bytes = out.bytes}, from, deadline);
}

}  // namespace hvd
