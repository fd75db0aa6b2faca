#include "node/node_admission.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include <hvd/core/version.hpp>

#include "base/exit_codes.hpp"
#include "base/text.hpp"
#include "plan/this_host.hpp"

namespace hvd::launcher {
namespace {

std::string describe(const Join& join) {
  return join.node_rank < 0 ? fmt::format("a node on {}", join.hostname)
                            : fmt::format("node {} on {}", join.node_rank, join.hostname);
}

[[noreturn]] void refuse_claim(int node_rank, const std::string& holder, const Join& join) {
  throw LaunchError(kExitUsage, fmt::format("two nodes claim node rank {}: one on {} and one on {}",
                                            node_rank, holder, join.hostname));
}

}  // namespace

void check_join(const Join& join, const NodeConfig& config, std::span<const Join> others) {
  if (join.version != version()) {
    throw LaunchError(kExitProtocol, fmt::format("hvdrun is {} here and {} on {}", version(),
                                                 in_quotes(join.version), join.hostname));
  }
  if (join.nodes != config.nodes) {
    throw LaunchError(kExitUsage,
                      fmt::format("node 0 was started with --nnodes {}, but {} with --nnodes {}",
                                  config.nodes, describe(join), join.nodes));
  }
  if (join.node_rank >= config.nodes) {
    throw LaunchError(kExitUsage,
                      fmt::format("the node on {} claims node rank {}, but the job has node ranks "
                                  "0 to {}",
                                  join.hostname, join.node_rank, config.nodes - 1));
  }
  if (join.node_rank == 0) refuse_claim(0, own_host_name(), join);
  std::int64_t ranks = std::int64_t{config.processes} + join.processes;
  for (const Join& other : others) {
    ranks += other.processes;
    if (join.node_rank > 0 && other.node_rank == join.node_rank) {
      refuse_claim(join.node_rank, other.hostname, join);
    }
  }
  if (ranks > kMostRanks) {
    throw LaunchError(kExitUsage, fmt::format("with the {} ranks of {} the job would have {}, and "
                                              "{} is the most",
                                              join.processes, describe(join), ranks, kMostRanks));
  }
}

std::vector<int> assign_node_ranks(std::span<const Join> joins) {
  std::set<int> free;
  for (int rank = 1; rank <= static_cast<int>(joins.size()); ++rank) free.insert(rank);
  for (const Join& join : joins) free.erase(join.node_rank);
  std::vector<int> ranks;
  for (const Join& join : joins) {
    ranks.push_back(join.node_rank > 0 ? join.node_rank : free.extract(free.begin()).value());
  }
  return ranks;
}

std::string missing_nodes(const NodeConfig& config, std::span<const Join> joins) {
  const auto open = [](const Join& join) { return join.node_rank < 0; };
  if (std::any_of(joins.begin(), joins.end(), open)) {
    return fmt::format("{}", config.nodes - 1 - static_cast<int>(joins.size()));
  }
  std::vector<int> missing;
  for (int rank = 1; rank < config.nodes; ++rank) {
    const auto is_it = [rank](const Join& join) { return join.node_rank == rank; };
    if (std::none_of(joins.begin(), joins.end(), is_it)) missing.push_back(rank);
  }
  return fmt::format("node{} {}", missing.size() == 1 ? "" : "s", rank_ranges(missing));
}

}  // namespace hvd::launcher
