// Implements collectives on host memory by those of MPI.
#pragma once

#include <functional>
#include <memory>

#include <hvd/core/internal/backend.hpp>

#include "fusion/accumulator.hpp"
#include "fusion/buffer.hpp"
#include "fusion/staging.hpp"
#include "mpi/mpi_comm.hpp"
#include "mpi/mpi_process.hpp"
#include "mpi/mpi_reduction.hpp"

namespace hvd::detail {

struct MpiOptions {
  /// The most bytes of one MPI call, at least 8. MPI counts in int.
  std::size_t max_piece = std::size_t{1} << 30;
};

/// Uses non-blocking collectives and tests them until the deadline. The order in which MPI adds is
/// its own: it is the same for the same library, ranks and sizes, but may depend on the tensors
/// that are fused.
class MpiBackend final : public Backend {
 public:
  /// Not collective. `use` and `comm` may be shared with an MpiTransport as long as one works at a
  /// time; an error or `abort` of one ends both.
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

  /// Holds what a backend shares with its subsets. Only one of these backends works at a time.
  struct Shared {
    MpiOptions options;
    std::shared_ptr<MpiUse> use;
    std::unique_ptr<Buffers> buffers = std::make_unique<Buffers>();
    MpiReductions reductions;
  };

  MpiBackend(std::shared_ptr<Shared> shared, std::shared_ptr<const MpiComm> comm);

  /// Runs `body` under `MpiUse::guard`.
  void run(std::string_view phase, Deadline deadline, const std::function<void(Watch&)>& body);
  /// Tells whether MPI may get the caller's memory. After a failure MPI keeps it, which does no
  /// harm as long as nobody calls MPI again.
  [[nodiscard]] bool may_lend() const noexcept { return !shared_->use->shared_with_program(); }
  [[nodiscard]] Staging staging();
  /// Reduces `data` in place. MPI requires that all ranks do so or none, and where a tensor lies is
  /// each rank's own affair.
  void reduce_pieces(std::byte* data, std::int64_t count, const Accumulator& elements,
                     Watch& watch);
  /// Reduces block r of `src` into rank r's `dst`.
  void scatter_pieces(const std::byte* src, std::byte* dst, std::span<const std::int64_t> bounds,
                      const Accumulator& elements, Watch& watch);
  void broadcast_pieces(std::byte* data, std::size_t size, int root, Watch& watch);
  /// Gathers every rank's block of `data` in place.
  void gather_pieces(std::byte* data, std::span<const std::int64_t> bounds, Watch& watch);
  void exchange_parts(const AlltoallCall& call, const std::byte* input, std::byte* output,
                      Watch& watch);

  std::shared_ptr<Shared> shared_;
  std::shared_ptr<const MpiComm> comm_;
};

}  // namespace hvd::detail
