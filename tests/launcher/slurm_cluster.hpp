// A Slurm cluster of two nodes, which are both this machine.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "directory.hpp"
#include "hvdrun.hpp"

namespace hvd::launcher {

class SlurmCluster {
 public:
  /// Returns what this machine lacks for such a cluster; empty: nothing.
  [[nodiscard]] static std::string lacks();

  /// Starts the cluster and waits until both nodes are idle. Slurm sorts nodes by name. Programs
  /// that connect to the first node need a name that resolves.
  SlurmCluster(const std::string& first_node, const std::string& second_node);

  /// Returns options for a command that uses this cluster.
  [[nodiscard]] test::ProcessOptions command(std::vector<std::string> arguments) const;

 private:
  [[nodiscard]] test::ProcessOptions with_configuration(const std::string& folder,
                                                        std::vector<std::string> arguments) const;

  Directory directory_;
  std::array<std::optional<test::Process>, 3> daemons_;
};

}  // namespace hvd::launcher
