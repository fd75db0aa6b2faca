// For programs that use MPI themselves and train on some of its ranks. Only in builds with MPI; the
// program links MPI's C interface, the same MPI that hvd was built with.
#pragma once

#include <memory>

#include <mpi.h>

#include <hvd/hvd.hpp>

namespace hvd {

/// A context of the ranks of `comm`, which keep their numbers. Nothing but `comm` is needed to find
/// each other: rank 0 serves a store, whose address and secret are broadcast. `config` gives the
/// settings; its place in a job (rank, size, job, store, secret) is not looked at. `comm` may be
/// freed afterwards: with HVD_BACKEND=mpi the context works on a duplicate.
///
/// Collective over `comm`, in this thread, which MPI must allow to call it: that is all that is
/// asked of the thread level, but HVD_BACKEND=mpi needs MPI_THREAD_MULTIPLE when the program
/// initialised MPI. Without it all ranks use the native transport, and rank 0 says so. Initialises
/// MPI when the program has not (`comm` is then MPI_COMM_WORLD). Throws as
/// `make_context(config, store)` does, within `config.start_timeout`; Errc::invalid_argument for
/// MPI_COMM_NULL and intercommunicators, Errc::unsupported in a wrong thread or after MPI_Finalize.
[[nodiscard]] std::unique_ptr<Context> make_context(const Config& config, MPI_Comm comm);

/// `init()` for the ranks of `comm`: a default context as above.
void init(MPI_Comm comm, const Config& config = Config::from_environment());

}  // namespace hvd
