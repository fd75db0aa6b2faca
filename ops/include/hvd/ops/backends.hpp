// The backends of this build. What is left out of a build is a file with the same functions that
// return null (mpi/no_mpi.cpp, nccl/no_nccl.cpp).
#pragma once

#include <memory>

#include <hvd/core/backend.hpp>
#include <hvd/ops/transport.hpp>

namespace hvd {

class Session;
struct Topology;

/// Reduces in host memory over `transport`: segmented ring, fusion buffer, SIMD kernels. Always
/// there. Algorithm: Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms".
[[nodiscard]] std::unique_ptr<Backend> make_ring_backend(std::unique_ptr<Transport> transport);

/// Several hosts: an allreduce goes through `host`, the backend of this host's ranks (null: a
/// subset of `flat`), then from host to host on each rank's own slice, then through `host` again,
/// so that a link carries 2(h-1)/h of the bytes once. Everything else is `flat`'s, the backend of
/// all ranks. Collective.
[[nodiscard]] std::unique_ptr<Backend> make_hierarchical_backend(std::unique_ptr<Backend> flat,
                                                                 std::unique_ptr<Backend> host,
                                                                 const Topology& topology,
                                                                 Deadline deadline);

/// Host memory over MPI collectives on a duplicate of MPI_COMM_WORLD. Initialises MPI when the
/// program has not; call from the user's thread. Collective. Throws Errc::unsupported, saying why,
/// when MPI's ranks are not the session's. Null when this build has no MPI.
[[nodiscard]] std::unique_ptr<Backend> make_mpi_backend(Session& session);

/// Device memory over NCCL on streams of its own. Collective. Null when this build has no NCCL or
/// this machine no GPU.
[[nodiscard]] std::unique_ptr<Backend> make_nccl_backend(Session& session);

}  // namespace hvd
