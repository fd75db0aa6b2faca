// Host memory over MPI: the real thing behind make_mpi_backend.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include <hvd/core/backend.hpp>

#include "fusion/buffer.hpp"
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
  MpiBackend(std::unique_ptr<MpiUse> use, MPI_Comm parent, Deadline deadline,
             const MpiOptions& options = {});
  ~MpiBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "mpi"; }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override;
  void allreduce(const AllreduceCall& call, Deadline deadline) override;
  void allgather(const AllgatherCall& call, Deadline deadline) override;
  void broadcast(const BroadcastCall& call, Deadline deadline) override;
  void barrier(Deadline deadline) override;
  void abort() noexcept override;

 private:
  struct Buffers {
    FusionBuffer fused;
    FusionBuffer gathered;
  };

  /// Runs `body`; after an error MPI is given up and every later call throws that error again.
  void run(std::string_view phase, Deadline deadline, const std::function<void(Watch&)>& body);
  /// Whether the caller's memory may be given to MPI: after a failure MPI keeps it, which does no
  /// harm as long as nobody calls MPI again.
  [[nodiscard]] bool may_lend() const noexcept { return !use_->shared_with_program(); }
  /// In place when `src` is `data`.
  void reduce_pieces(const std::byte* src, std::byte* data, std::int64_t count, DType dtype,
                     ReduceOp op, Watch& watch);
  void broadcast_pieces(std::byte* data, std::size_t size, int root, Watch& watch);
  /// `sizes[r]` bytes from each rank, one after the other.
  void gather_pieces(const std::byte* src, std::byte* dst, const std::vector<std::size_t>& sizes,
                     Watch& watch);

  MpiOptions options_;
  std::unique_ptr<MpiUse> use_;
  std::atomic<bool> aborted_{false};
  std::exception_ptr first_error_;
  std::unique_ptr<Buffers> buffers_ = std::make_unique<Buffers>();
  std::unique_ptr<MpiComm> comm_;
  MpiReductions reductions_;
};

}  // namespace hvd
