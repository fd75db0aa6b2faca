// The C++ of docs/start/from_python.md for programs that use MPI themselves. Compiled, never run.
#include <hvd/mpi.hpp>

namespace guide {

void joining_by_mpi(MPI_Comm comm) { hvd::init(comm); }

}  // namespace guide
