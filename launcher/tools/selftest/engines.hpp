// The ways in which this job's ranks can be joined, each to be tested in a context of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <hvd/hvd.hpp>

namespace hvd::selftest {

struct Engine {
  std::string name;
  /// Collective. Null when the ranks cannot use it.
  std::function<std::unique_ptr<Context>(Config)> make;
};

/// The first is the one that a program gets with nothing set. The same on all ranks. `topology` is
/// that of the job, `config` that of the environment.
[[nodiscard]] std::vector<Engine> engines_of(const Topology& topology, const Config& config);

}  // namespace hvd::selftest
