// What the machine at hand offers to a job, for --check-build.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rank_environment.hpp"

namespace hvd::launcher {

struct MachineFacts {
  struct Tool {
    std::string name;  ///< "mpirun"
    std::string path;  ///< empty: not found
    std::string note;  ///< in brackets behind it
  };
  struct Interface {
    std::string name;
    std::vector<std::string> addresses;  ///< numeric
  };

  std::string host;
  int cores = 1;                    ///< that this process may use
  std::uint64_t memory = 0;         ///< bytes; 0: unknown
  std::uint64_t shared_memory = 0;  ///< bytes of /dev/shm; 0: it is not there
  int gpus = 0;
  std::vector<Tool> launchers;
  std::vector<Interface> interfaces;  ///< up, but for the loopback
  std::optional<std::string> chosen;  ///< the interface that ranks on other hosts are met on
};

/// `own` is hvdrun's environment: where programs are looked for.
[[nodiscard]] MachineFacts look_at_machine(const Variables& own);

/// Whole lines.
[[nodiscard]] std::string machine_table(const MachineFacts& facts);

}  // namespace hvd::launcher
