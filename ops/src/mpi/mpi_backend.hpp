// Host memory over MPI: the real thing behind make_mpi_backend.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>

#include <hvd/core/backend.hpp>

#include "fusion/accumulator.hpp"
#include "fusion/buffer.hpp"
#include "fusion/staging.hpp"
#include "mpi/mpi_comm.hpp"
#include "mpi/mpi_process.hpp"
#include "mpi/mpi_reduction.hpp"

namespace hvd {

struct MpiOptions {
  /// One MPI call moves at most this; MPI counts in int. At least 8.
  std::size_t max_piece = std::size_t{1} << 30;
};

/// Non-blocking collectives, tested against the deadline. The order in which MPI adds is its own:
/// the same for the same library, ranks and sizes, and may change with what tensors were fused
/// with.
class MpiBackend final : public Backend {
 public:
  /// Collective over `parent`. Takes the use of MPI as the constructor of `MpiUse` gave it.
  MpiBackend(std::shared_ptr<MpiUse> use, MPI_Comm parent, Deadline deadline,
             const MpiOptions& options = {});
  /// On a communicator that others may have as well. Not collective.
  MpiBackend(std::shared_ptr<MpiUse> use, std::shared_ptr<const MpiComm> comm,
             const MpiOptions& options = {});

  [[nodiscard]] std::string_view name() const noexcept override { return "mpi"; }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override;
  void allreduce(const AllreduceCall& call, Deadline deadline) override;
  void allgather(const AllgatherCall& call, Deadline deadline) override;
  void broadcast(const BroadcastCall& call, Deadline deadline) override;
  void reducescatter(const ReducescatterCall& call, Deadline deadline) override;
  void alltoall(const AlltoallCall& call, Deadline deadline) override;
  void barrier(Deadline deadline) override;
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int> ranks,
                                                Deadline deadline) override;
  void abort() noexcept override;

 private:
  struct Buffers {
    FusionBuffer fused;
    FusionBuffer received;
  };

  /// What a backend and its subsets, of which one works at a time, have together.
  struct Shared {
    MpiOptions options;
    std::shared_ptr<MpiUse> use;
    std::atomic<bool> aborted{false};
    std::exception_ptr first_error;
    std::unique_ptr<Buffers> buffers = std::make_unique<Buffers>();
    MpiReductions reductions;
  };

  MpiBackend(std::shared_ptr<Shared> shared, std::shared_ptr<const MpiComm> comm);

  /// Runs `body`; after an error MPI is given up and every later call throws that error again.
  void run(std::string_view phase, Deadline deadline, const std::function<void(Watch&)>& body);
  /// Whether the caller's memory may be given to MPI: after a failure MPI keeps it, which does no
  /// harm as long as nobody calls MPI again.
  [[nodiscard]] bool may_lend() const noexcept { return !shared_->use->shared_with_program(); }
  [[nodiscard]] Staging staging();
  /// In place when `src` is `data`.
  void reduce_pieces(const std::byte* src, std::byte* data, std::int64_t count,
                     const Accumulator& elements, Watch& watch);
  /// Block r of `src`, reduced, to rank r's `dst`.
  void scatter_pieces(const std::byte* src, std::byte* dst, std::span<const std::int64_t> bounds,
                      const Accumulator& elements, Watch& watch);
  void broadcast_pieces(std::byte* data, std::size_t size, int root, Watch& watch);
  /// Every rank's block of `data`, in place.
  void gather_pieces(std::byte* data, std::span<const std::int64_t> bounds, Watch& watch);
  void exchange_parts(const AlltoallCall& call, const std::byte* input, std::byte* output,
                      Watch& watch);

  std::shared_ptr<Shared> shared_;
  std::shared_ptr<const MpiComm> comm_;
};

}  // namespace hvd
