// The three parts that a rank can have in a control tree.
#pragma once

#include <memory>

#include <hvd/core/control_channel.hpp>

#include "net/frame.hpp"
#include "net/tree_routes.hpp"

namespace hvd::net {

/// What a rank needs to take its part.
struct TreePlace {
  EventLoop& loop;
  PeerNetwork& network;
  const TreeRoutes& routes;
  int rank = 0;
  Deadline deadline;
  std::size_t max_backlog = 2 * kMaxFrame;  ///< what a neighbour may leave unread

  [[nodiscard]] UniqueFd open(int peer) const { return network.open(peer, "control", deadline); }
};

/// Rank 0.
[[nodiscard]] std::unique_ptr<ControlChannel> make_tree_root(const TreePlace& place);
/// A child of rank 0, with members or without.
[[nodiscard]] std::unique_ptr<ControlChannel> make_tree_relay(const TreePlace& place);
/// A member of another group than rank 0's.
[[nodiscard]] std::unique_ptr<ControlChannel> make_tree_member(const TreePlace& place);

/// Throws Errc::invalid_argument when a message is longer than the tree carries.
void check_length(const Bytes& message);
/// Throws Errc::invalid_argument.
[[noreturn]] void refuse_recipient(int to);

}  // namespace hvd::net
