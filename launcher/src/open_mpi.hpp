// Which Open MPI is installed.
#pragma once

#include "rank_environment.hpp"

namespace hvd::launcher {

/// What its mpirun is told and says differs between these.
enum class OpenMpi {
  none,
  orte,   ///< up to 4
  prrte,  ///< from 5 on
};

/// The one whose mpirun `own`'s PATH leads to; none: it is that of another MPI, or there is none.
[[nodiscard]] OpenMpi open_mpi(const Variables& own);

}  // namespace hvd::launcher
