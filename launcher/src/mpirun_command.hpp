// Open MPI's mpirun as what starts the ranks.
#pragma once

#include <string>
#include <vector>

#include "open_mpi.hpp"
#include "options.hpp"
#include "plan.hpp"
#include "rank_environment.hpp"

namespace hvd::launcher {

struct MpirunCommand {
  std::vector<std::string> arguments;  ///< with "mpirun" first
  Variables variables;                 ///< its environment; values are in no argument
  OpenMpi kind = OpenMpi::orte;
  int threads = 0;  ///< the OMP_NUM_THREADS it sets; 0: the user has set it
};

/// The command that runs the program of `options` as `plan` says. `own` is hvdrun's environment;
/// where it leads to no Open MPI, the command is that of Open MPI 4.
[[nodiscard]] MpirunCommand mpirun_command(const Options& options, const Plan& plan,
                                           const Variables& own);

/// Whether `own`'s PATH leads to Open MPI's mpirun, and not to that of another MPI.
[[nodiscard]] inline bool has_open_mpi(const Variables& own) {
  return open_mpi(own) != OpenMpi::none;
}

}  // namespace hvd::launcher
