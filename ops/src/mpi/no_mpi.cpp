// In place of make_mpi_backend.cpp where the build has no MPI.
#include <hvd/ops/backends.hpp>

namespace hvd {

std::unique_ptr<Backend> make_mpi_backend(Session&) { return nullptr; }

}  // namespace hvd
