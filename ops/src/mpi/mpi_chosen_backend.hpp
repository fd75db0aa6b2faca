// Host memory over MPI, each call the faster of two ways: the real thing behind make_mpi_backend.
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include <hvd/core/backend.hpp>

#include "mpi/mpi_plan.hpp"

namespace hvd {

/// Asks the plan for operation and bytes, which are the same on all ranks. What the ring cannot
/// do (the average of booleans) and what MPI does by messages anyway is MPI's own.
class MpiChosenBackend final : public Backend {
 public:
  MpiChosenBackend(std::unique_ptr<Backend> collective, std::unique_ptr<Backend> ring,
                   const MpiWays& ways);

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
  /// Of a backend and its subsets.
  struct Shared {
    MpiWays ways;
    std::exception_ptr first_error;
  };

  MpiChosenBackend(std::unique_ptr<Backend> collective, std::unique_ptr<Backend> ring,
                   std::shared_ptr<Shared> shared);

  /// Neither way works once one of them has failed: MPI is not called again.
  void run(const std::function<void()>& body);
  [[nodiscard]] Backend& pick(OpKind kind, std::size_t bytes, DType dtype, ReduceOp op);

  std::unique_ptr<Backend> collective_;
  std::unique_ptr<Backend> ring_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace hvd
