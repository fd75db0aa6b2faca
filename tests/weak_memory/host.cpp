#include "host.hpp"

#include <new>

#include <unistd.h>

namespace hvd::weak {

using namespace hvd::detail;

Host::Host(int ranks) : ranks_(static_cast<std::size_t>(ranks)), state_(ranks_.size()) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
  for (const int rank : ranks_) {
    at(rank).own = std::make_shared<const HostSegment>(HostSegment::create(rank, ranks, 1U << 20));
  }
  for (Rank& rank : state_) {
    for (const int other : ranks_) {
      UniqueFd fd(::dup(at(other).own->memory().fd()));
      rank.others.push_back(HostSegment::attach(std::move(fd), other, ranks));
    }
  }
}

void Host::reset() {
  for (const int rank : ranks_) {
    Rank& state = at(rank);
    new (&state.own->doorbell()) Doorbell;
    new (&state.own->sets()) HostSets;
    new (state.own->data() + HostSegment::block()) HostControl;

    std::vector<HostShared::Peer> peers(ranks_.size());
    for (std::size_t other = 0; other < peers.size(); ++other) {
      if (static_cast<int>(other) == rank) continue;
      peers[other].segment =
          std::move(state.shared ? state.shared->peers[other].segment : state.others[other]);
    }
    state.shared = std::make_shared<HostShared>(state.own, std::move(peers), rank, 0);
    state.fence = std::make_unique<HostFence>(state.shared);
    state.group = state.shared->group_of_all(ranks_);

    const auto id = static_cast<unsigned>(rank);
    share(state.own->data(), state.own->size(), id);
    for (const int other : ranks_) {
      if (other == rank) continue;
      const HostSegment& segment = state.shared->peers[static_cast<std::size_t>(other)].segment;
      share(segment.data(), segment.size(), static_cast<unsigned>(other));
    }
    share(&state.shared->failure, sizeof state.shared->failure, 100 + id);
    share(state.fence.get(), sizeof *state.fence, 200 + id);
  }
}

}  // namespace hvd::weak
