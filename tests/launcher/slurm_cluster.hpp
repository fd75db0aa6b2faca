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
  /// What this machine lacks for one; empty: nothing.
  [[nodiscard]] static std::string lacks();

  /// Starts it and waits until both nodes are idle. Slurm sorts nodes by their names. A program
  /// that looks for the first one needs a name that the resolver knows.
  SlurmCluster(const std::string& first_node, const std::string& second_node);

  /// A command that talks to this cluster.
  [[nodiscard]] test::ProcessOptions command(std::vector<std::string> arguments) const;

 private:
  [[nodiscard]] test::ProcessOptions with_configuration(const std::string& folder,
                                                        std::vector<std::string> arguments) const;

  Directory directory_;
  std::array<std::optional<test::Process>, 3> daemons_;
};

}  // namespace hvd::launcher
