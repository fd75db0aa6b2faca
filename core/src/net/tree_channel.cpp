#include "net/tree_channel.hpp"

#include <fmt/format.h>

#include <hvd/core/error.hpp>

#include "net/tree_frame.hpp"

namespace hvd {
namespace net {

void check_length(const Bytes& message) {
  if (message.size() <= kMaxTreeMessage) return;
  throw Error(Errc::invalid_argument, fmt::format("a message of {} bytes exceeds the limit of {}",
                                                  message.size(), kMaxTreeMessage));
}

void refuse_recipient(int to) {
  throw Error(Errc::invalid_argument, fmt::format("no control stream leads to rank {}", to));
}

}  // namespace net

std::unique_ptr<ControlChannel> make_control_channel(EventLoop& loop, PeerNetwork& network,
                                                     int rank, int size, int fanout,
                                                     Deadline deadline) {
  const TreeRoutes routes(size, control_group(size, fanout));
  if (routes.is_star()) return make_star_channel(loop, network, rank, size, deadline);
  const net::TreePlace place{loop, network, routes, rank, deadline};
  if (rank == 0) return make_tree_root(place);
  return routes.parent(rank) == 0 ? make_tree_relay(place) : make_tree_member(place);
}

}  // namespace hvd
