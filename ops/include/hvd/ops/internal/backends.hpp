// Declares the backends of this build. In a build without MPI or NCCL the functions return no
// backend (mpi/no_mpi.cpp, nccl/no_nccl.cpp).
#pragma once

#include <memory>
#include <vector>

#include <hvd/core/arena.hpp>
#include <hvd/core/internal/backend.hpp>
#include <hvd/core/internal/ready_fence.hpp>
#include <hvd/ops/internal/transport.hpp>

namespace hvd {

class Session;
struct Topology;

/// Reduces host memory over `transport` with a segmented ring, a fusion buffer and SIMD kernels.
/// The algorithm is that of Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms".
[[nodiscard]] std::unique_ptr<Backend> make_ring_backend(std::unique_ptr<Transport> transport);

/// Makes a backend for several hosts. An allreduce goes through `host`, the backend of this host's
/// ranks (if null, a subset of `flat`), then from host to host for each rank's own slice, then
/// through `host` again, so that a link carries 2(h-1)/h of the bytes once. `flat`, the backend of
/// all ranks, does everything else. Collective.
[[nodiscard]] std::unique_ptr<Backend> make_hierarchical_backend(std::unique_ptr<Backend> flat,
                                                                 std::unique_ptr<Backend> host,
                                                                 const Topology& topology,
                                                                 Deadline deadline);

/// Holds a backend for host memory among ranks of one host, and the memory that they share.
struct HostEngine {
  std::unique_ptr<Backend> backend;
  std::shared_ptr<Arena> arena;  ///< this rank's; may outlive everything else
  /// The fence of the same ranks. Its messages are also the first messages of the backend's
  /// operations.
  std::unique_ptr<ReadyFence> fence;
};

/// Makes the engine of several ranks that are all on one host. It reduces tensors that lie in the
/// arena straight from and into each other's memory, and others through shared slots; sums run in
/// rank order. Collective. `session` outlives the backend. Throws Errc::unsupported naming a rank
/// on another host, and Errc::resource. See docs/internals/host-engine.md.
[[nodiscard]] HostEngine make_host_engine(Session& session);

/// Reduces host memory over MPI on a duplicate of MPI_COMM_WORLD: by its collectives or by a ring
/// over its messages, whichever was faster in a short measurement. Initialises MPI when the program
/// has not, so the user's thread must call it. Collective. Returns null when this build has no MPI
/// or some rank cannot use it; rank 0 then has logged which rank, and why.
[[nodiscard]] std::unique_ptr<Backend> make_mpi_backend(Session& session);

/// Makes the backends for device memory, of which the first that supports an operation runs it.
/// "nccl" uses a stream of its own. Behind it, "pinned" does the reductions that NCCL does not
/// have, through pinned memory and `host`, which has the same ranks and outlives them. Where ranks
/// share a GPU, which NCCL refuses, there is "pinned" alone. Collective. Returns no backends when
/// this build has no NCCL or some rank has no GPU. See docs/internals/nccl.md.
[[nodiscard]] std::vector<std::unique_ptr<Backend>> make_nccl_backends(Session& session,
                                                                       Backend& host);

/// Tells whether these backends do what `Request::f32_memory` asks for, which needs a build with
/// nvcc.
[[nodiscard]] bool gpu_copies_convert() noexcept;

}  // namespace hvd
