// Lists the engines that can join this job's ranks, each to be tested in a context of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <hvd/hvd.hpp>

namespace hvd::selftest {

struct Engine {
  std::string name;
  /// Collective. Returns null when the ranks cannot use the engine.
  std::function<std::unique_ptr<Context>(Config)> make;
};

/// Returns the same engines on all ranks. The first is the one that a program gets with `config`,
/// the configuration of the environment. `topology` is that of the job.
[[nodiscard]] std::vector<Engine> engines_of(const Topology& topology, const Config& config);

}  // namespace hvd::selftest
