// Compiles the C++ of the pages for programs that use MPI themselves, as guide_snippets.cpp does.
#include <hvd/mpi.hpp>

namespace guide {

void joining_by_mpi(const hvd::Config& config, MPI_Comm comm) {
#include "backends_1.inc"
}

}  // namespace guide
