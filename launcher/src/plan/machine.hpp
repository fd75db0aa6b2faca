// Collects what this machine offers to a job, for --check-build.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/rank_environment.hpp"

namespace hvd::launcher {

struct MachineFacts {
  struct Tool {
    std::string name;  ///< "ssh"
    std::string path;  ///< empty when not found
  };
  struct Interface {
    std::string name;
    std::vector<std::string> addresses;  ///< numeric
  };

  std::string host;
  int cores = 1;                    ///< cores that this process may use
  std::uint64_t memory = 0;         ///< in bytes; 0: unknown
  std::uint64_t shared_memory = 0;  ///< bytes of /dev/shm; 0: there is none
  int gpus = 0;
  std::vector<Tool> launchers;
  std::vector<Interface> interfaces;  ///< interfaces that are up, without the loopback
  std::optional<std::string> chosen;  ///< the interface that ranks use towards other hosts
};

/// `own` is hvdrun's environment, whose PATH is searched for programs.
[[nodiscard]] MachineFacts look_at_machine(const Variables& own);

/// Formats the facts as text that ends with a newline.
[[nodiscard]] std::string machine_table(const MachineFacts& facts);

}  // namespace hvd::launcher
