// Serves programs that use MPI themselves and train on some of its ranks. It exists only in builds
// with MPI; the program links MPI's C interface, the same MPI that hvd was built with.
#pragma once

#include <hvd/core/standard.hpp>

#if __cplusplus >= 202002L

#include <memory>

#include <mpi.h>

#include <hvd/hvd.hpp>

namespace hvd {

/// Makes a context of the ranks of `comm`, which keep their numbers. They find each other through
/// `comm` alone: rank 0 serves a store, whose address and secret are broadcast. `config` gives the
/// settings; its rank, size, job, store and secret are ignored. `comm` may be
/// freed afterwards: with HVD_BACKEND=mpi the context works on a duplicate.
///
/// Collective over `comm`, in this thread, in which MPI's thread level must allow calls. No more is
/// required, except that HVD_BACKEND=mpi needs MPI_THREAD_MULTIPLE. Without it all ranks use the
/// native transport, and rank 0 logs that. When the program has not initialised MPI, this does so,
/// with MPI_THREAD_MULTIPLE (`comm` is then MPI_COMM_WORLD). Throws as `make_context(config,
/// store)` does, within `config.start_timeout`; Errc::invalid_argument for MPI_COMM_NULL and
/// intercommunicators, Errc::unsupported in a wrong thread or after MPI_Finalize.
[[nodiscard]] std::unique_ptr<Context> make_context(const Config& config, MPI_Comm comm);

/// Does what `init()` does, with a context of the ranks of `comm`.
void init(MPI_Comm comm, const Config& config = Config::from_environment());

}  // namespace hvd

#endif
