// What docs/guide.md says to programs with MPI of their own. Compiled, never run.
#include <hvd/mpi.hpp>

namespace guide {

void joining_by_mpi(MPI_Comm comm) { hvd::init(comm); }

}  // namespace guide
