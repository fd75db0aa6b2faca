// Decides which nodes may be part of a job that every node joins by itself. Nothing that a node
// sends is trusted before it has passed these checks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "node/node_options.hpp"
#include "transport/frames.hpp"

namespace hvd::launcher {

/// The most ranks that a job of several nodes may have.
inline constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

/// Checks a node that wants to join a job that node 0 and `others` have joined already. Throws
/// LaunchError, which names the node and the wrong value: its version, its number of nodes, a node
/// rank that the job does not have or that another node holds, or too many ranks.
void check_join(const Join& join, const NodeConfig& config, std::span<const Join> others);

/// Returns the node ranks of the nodes that joined, in the order of `joins`, which have all passed
/// `check_join`. Nodes that left their rank open take the free ones in order of arrival.
[[nodiscard]] std::vector<int> assign_node_ranks(std::span<const Join> joins);

/// Names the nodes that are still missing, such as "nodes 2, 5", or counts them where a node that
/// has joined left its rank open.
[[nodiscard]] std::string missing_nodes(const NodeConfig& config, std::span<const Join> joins);

}  // namespace hvd::launcher
