// The backends of this build. What is left out of a build is a file with the same functions that
// return null (mpi/no_mpi.cpp, nccl/no_nccl.cpp).
#pragma once

#include <memory>
#include <vector>

#include <hvd/core/arena.hpp>
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

/// Host memory among ranks of one host, and the memory that they share.
struct HostEngine {
  std::unique_ptr<Backend> backend;
  std::shared_ptr<Arena> arena;  ///< this rank's; may outlive everything else
};

/// Every rank on one host, several of them. Reduces tensors that lie in the arena straight from and
/// into each other's memory, and others through shared slots; sums run in rank order. Collective.
/// `session` outlives the backend. Throws Errc::unsupported naming a rank on another host, and
/// Errc::resource. See docs/host-engine.md.
[[nodiscard]] HostEngine make_host_engine(Session& session);

/// Host memory over MPI on a duplicate of MPI_COMM_WORLD: its collectives or a ring over its
/// messages, whichever was faster in a short measurement here. Initialises MPI when the program has
/// not; call from the user's thread. Collective. Null when this build has no MPI or some rank
/// cannot use it, which rank 0 then has said, and why.
[[nodiscard]] std::unique_ptr<Backend> make_mpi_backend(Session& session);

/// Device memory: the first of them that supports an operation runs it. "nccl", on a stream of its
/// own, and behind it, for the reductions that NCCL has not, "pinned": by way of pinned memory and
/// `host`, which outlives them and is of the same ranks. Where ranks share a GPU, which NCCL
/// refuses, "pinned" alone. Collective. Empty when this build has no NCCL or some rank no GPU. See
/// docs/nccl.md.
[[nodiscard]] std::vector<std::unique_ptr<Backend>> make_nccl_backends(Session& session,
                                                                       Backend& host);

}  // namespace hvd
