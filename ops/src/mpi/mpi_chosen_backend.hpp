// Runs collectives on host memory over MPI by the faster of two algorithms, which is chosen by
// operation and size: MPI's own collective, or the ring over MPI messages. make_mpi_backend makes
// it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include <hvd/core/internal/backend.hpp>

#include "tuning/algorithm_plan.hpp"
#include "tuning/measure.hpp"

namespace hvd::detail {

/// Holds the tables of the operations that have two algorithms. Its methods have no side effects.
class MpiTables {
 public:
  /// Takes MPI's own collective always.
  MpiTables() : MpiTables(AlgorithmPlan()) {}
  explicit MpiTables(const AlgorithmPlan& plan);

  [[nodiscard]] Algorithm of(OpKind kind, std::size_t bytes) const noexcept;

 private:
  std::array<AlgorithmTable, 4> tables_;
};

/// Lists the candidates in the order of the times that `measure_mpi` returns.
inline constexpr std::array<Candidate, 2> kMpiCandidates{
    {{Algorithm::collective, 0}, {Algorithm::ring, 0}}};

/// Returns rank 0's times, on every rank. Collective.
[[nodiscard]] std::vector<Timing> measure_mpi(Backend& collective, Backend& ring,
                                              const Measurement& options);
/// Returns the plan that follows from the times. Without any times, it has MPI's own collectives
/// only.
[[nodiscard]] AlgorithmPlan mpi_plan(std::span<const Timing> timings);

/// Looks up operation and bytes, which are the same on all ranks. MPI's own collectives run the
/// operations that the ring cannot run (the average of booleans) and those that MPI runs by
/// messages in any case. The two backends share an MpiUse, so an error of MPI ends both.
class MpiChosenBackend final : public Backend {
 public:
  MpiChosenBackend(std::unique_ptr<Backend> collective, std::unique_ptr<Backend> ring,
                   MpiTables tables);

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
  [[nodiscard]] Backend& pick(OpKind kind, std::size_t bytes, DType dtype, ReduceOp op);

  std::unique_ptr<Backend> collective_;
  std::unique_ptr<Backend> ring_;
  MpiTables tables_;
};

}  // namespace hvd::detail
