// Reads rank, size, job and rendezvous from the variables of a Slurm step (`srun`).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/variable_reader.hpp"

namespace hvd::detail {

struct SlurmStep {
  int rank = 0;
  int size = 1;
  int local_rank = -1;  ///< -1 when Slurm does not tell, as is `local_size`
  int local_size = -1;
  int nodes = 0;    ///< 0 when Slurm does not tell
  std::string job;  ///< "slurm-JOB.STEP"
  int restarts = 0;
  std::string first_node;  ///< where rank 0 runs
  int first_port = 0;      ///< rank 0 listens on the first free one of `ports`
  int ports = 1;
};

/// Returns nothing outside of a step, as in a batch script, which has a rank but no step, or in the
/// shell of an allocation. Throws Errc::invalid_argument naming the variable that is missing or
/// malformed.
[[nodiscard]] std::optional<SlurmStep> read_slurm_step(const VariableReader& read);

/// Returns the first node, as "n1" of "n[1-3,7],b"; empty when the text is no list of nodes.
[[nodiscard]] std::string first_node_of(std::string_view list);

}  // namespace hvd::detail
