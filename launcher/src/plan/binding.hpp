// Decides on which cores each rank of a host runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/cpu_topology.hpp"

namespace hvd::launcher {

/// What each rank is bound to.
enum class BindTo : std::uint8_t {
  automatic,  ///< its cores, if the ranks of its host fit the cores and nothing else limits them
  none,
  core,  ///< its cores
  numa,  ///< the NUMA nodes of its cores
};

/// Which cores the ranks get.
enum class MapBy : std::uint8_t {
  automatic,  ///< cores near the rank's GPU or its network card, otherwise as `core`
  core,       ///< consecutive ranks get neighbouring cores
  numa,       ///< the NUMA nodes take turns
};

inline constexpr int kMostCoresPerRank = 65'536;

/// The options --bind-to and --map-by.
struct BindingOptions {
  BindTo to = BindTo::automatic;
  MapBy by = MapBy::automatic;
  int cores = 0;  ///< the number of cores of each rank; 0: an equal share of those that are free

  /// Returns whether the user has asked for ranks to be bound.
  [[nodiscard]] bool requested() const noexcept {
    const bool chosen = to == BindTo::core || to == BindTo::numa;
    return to != BindTo::none && (chosen || by != MapBy::automatic || cores > 0);
  }

  friend bool operator==(const BindingOptions&, const BindingOptions&) = default;
};

struct Binding {
  std::vector<Cpus> cpus{};  ///< by local rank; empty: no rank is bound
  std::vector<int> cores{};  ///< the numbers of all cores in `cpus`, ascending
  std::string unbound{};     ///< why no rank is bound, unless the user wants that
};

/// Gives each of `ranks` ranks the same number of whole cores. The cores of a rank are neighbours
/// in one NUMA node where one has enough that are free. A rank's cores are in a node with CPUs of
/// `near[local rank]` if the user has not chosen an order; `near` may be empty. Throws LaunchError
/// (usage) when the user asks for what this machine cannot give.
[[nodiscard]] Binding plan_binding(const BindingOptions& options, int ranks,
                                   const CpuTopology& topology, const std::vector<Cpus>& near);

}  // namespace hvd::launcher
