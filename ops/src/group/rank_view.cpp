#include "group/rank_view.hpp"

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

void RankView::exchange(const Outgoing& out, const Incoming& in, Deadline deadline) {
  Incoming from = in;
  from.peer = translated(in.peer);
  whole_.exchange({.peer = translated(out.peer), .bytes = out.bytes}, from, deadline);
}

}  // namespace hvd
