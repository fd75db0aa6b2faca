#include "plan/binding.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/exit_codes.hpp"

namespace hvd::launcher {
namespace {

std::string counted(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Hands out free cores.
class Pool {
 public:
  explicit Pool(const std::vector<Core>& cores) {
    for (const Core& core : cores) {
      if (core.held) continue;
      free_.push_back(&core);
      if (std::find(nodes_.begin(), nodes_.end(), core.numa) == nodes_.end()) {
        nodes_.push_back(core.numa);
      }
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return free_.size(); }
  [[nodiscard]] const std::vector<int>& nodes() const noexcept { return nodes_; }

  /// Takes `count` cores: from the first of `nodes` that has so many, otherwise from several.
  std::vector<const Core*> take(std::size_t count, const std::vector<int>& nodes) {
    for (const int node : nodes) {
      auto taken = take_if(count, [node](const Core& core) { return core.numa == node; });
      if (taken.size() == count) return taken;
      put_back(taken);
    }
    return take_if(count, [](const Core&) { return true; });
  }

 private:
  template <typename Predicate>
  std::vector<const Core*> take_if(std::size_t most, Predicate wanted) {
    std::vector<const Core*> taken;
    std::vector<const Core*> rest;
    for (const Core* core : free_) {
      (taken.size() < most && wanted(*core) ? taken : rest).push_back(core);
    }
    free_ = std::move(rest);
    return taken;
  }

  void put_back(const std::vector<const Core*>& taken) {
    free_.insert(free_.end(), taken.begin(), taken.end());
    // All cores are elements of one array, in the order of the topology.
    std::sort(free_.begin(), free_.end());
  }

  std::vector<const Core*> free_;
  std::vector<int> nodes_;
};

/// Returns the NUMA nodes in the order in which a rank tries them.
std::vector<int> preferred_nodes(std::vector<int> nodes, MapBy by, int rank,
                                 const CpuTopology& topology, const Cpus& near) {
  if (by == MapBy::numa) {
    const auto turn = static_cast<std::ptrdiff_t>(rank) % std::ssize(nodes);
    std::rotate(nodes.begin(), nodes.begin() + turn, nodes.end());
  }
  if (by == MapBy::automatic) {
    std::stable_partition(nodes.begin(), nodes.end(), [&](int node) {
      return std::any_of(topology.cores.begin(), topology.cores.end(), [&](const Core& core) {
        return core.numa == node && std::find_first_of(core.cpus.begin(), core.cpus.end(),
                                                       near.begin(), near.end()) != core.cpus.end();
      });
    });
  }
  return nodes;
}

/// Returns all free cores of the NUMA nodes in which the given cores are.
std::vector<const Core*> whole_nodes(const std::vector<const Core*>& cores,
                                     const CpuTopology& topology) {
  std::vector<const Core*> all;
  for (const Core& core : topology.cores) {
    const auto beside = [&](const Core* other) { return other->numa == core.numa; };
    if (!core.held && std::any_of(cores.begin(), cores.end(), beside)) all.push_back(&core);
  }
  return all;
}

/// Says why the ranks cannot be bound whatever other jobs do, if that is so.
std::optional<std::string> obstacle(const BindingOptions& options, int ranks,
                                    const CpuTopology& topology) {
  if (!topology.unknown.empty()) return topology.unknown;
  const auto wanted =
      static_cast<std::size_t>(ranks) * static_cast<std::size_t>(std::max(options.cores, 1));
  if (wanted <= topology.cores.size()) return std::nullopt;
  return fmt::format("{} {} needed for {}, and {} may be used", counted(wanted, "core"),
                     wanted == 1 ? "is" : "are", counted(static_cast<std::size_t>(ranks), "rank"),
                     topology.cores.size());
}

}  // namespace

Binding plan_binding(const BindingOptions& options, int ranks, const CpuTopology& topology,
                     const std::vector<Cpus>& near) {
  if (options.to == BindTo::none || ranks < 1) return {};
  if (ranks == 1 && !options.requested()) {
    return {.unbound = "the only rank of this host may use all cores"};
  }
  if (const auto why = obstacle(options, ranks, topology)) {
    if (options.requested()) {
      throw LaunchError(kExitUsage, fmt::format("ranks cannot be bound to cores: {}", *why));
    }
    return {.unbound = *why};
  }
  if (topology.bound && !options.requested()) {
    return {.unbound = "hvdrun itself is bound to some CPUs"};
  }
  if (topology.quota && !options.requested()) {
    // Other containers may run on the same cores, and each of them would choose the first ones.
    return {.unbound = fmt::format("a quota limits its control group to the time of {}",
                                   counted(static_cast<std::size_t>(*topology.quota), "CPU"))};
  }

  Pool pool(topology.cores);
  const std::size_t share = options.cores > 0 ? static_cast<std::size_t>(options.cores)
                                              : pool.size() / static_cast<std::size_t>(ranks);
  if (share == 0 || share * static_cast<std::size_t>(ranks) > pool.size()) {
    return {.unbound = fmt::format("other jobs hold {} of {}", topology.cores.size() - pool.size(),
                                   counted(topology.cores.size(), "core"))};
  }
  Binding binding;
  for (int rank = 0; rank < ranks; ++rank) {
    const Cpus near_this = near.empty() ? Cpus() : near.at(static_cast<std::size_t>(rank));
    auto cores =
        pool.take(share, preferred_nodes(pool.nodes(), options.by, rank, topology, near_this));
    if (options.to == BindTo::numa) cores = whole_nodes(cores, topology);
    Cpus& cpus = binding.cpus.emplace_back();
    for (const Core* core : cores) {
      cpus.insert(cpus.end(), core->cpus.begin(), core->cpus.end());
      binding.cores.push_back(core->number);
    }
    std::sort(cpus.begin(), cpus.end());
  }
  std::sort(binding.cores.begin(), binding.cores.end());
  binding.cores.erase(std::unique(binding.cores.begin(), binding.cores.end()), binding.cores.end());
  return binding;
}

}  // namespace hvd::launcher
