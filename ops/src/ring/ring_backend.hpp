// Implements collectives on host memory over a transport. make_ring_backend makes it.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <hvd/core/internal/backend.hpp>
#include <hvd/ops/internal/transport.hpp>

#include "fusion/buffer.hpp"
#include "fusion/staging.hpp"
#include "ring/algorithms.hpp"
#include "ring/plan.hpp"
#include "transport/failure.hpp"
#include "tuning/algorithm_plan.hpp"

namespace hvd::detail {

class RingBackend final : public Backend {
 public:
  /// `host_of` is the host of each rank, and ring, chain and tree run in the order of hosts. When
  /// it is empty they run in rank order.
  explicit RingBackend(std::unique_ptr<Transport> transport, std::vector<int> host_of = {});

  /// Sets the sizes for which doubling or the ring is used, as the bytes that a rank receives by
  /// doubling. The caller calls it between collectives, with the same table on all ranks (although
  /// both algorithms give the same bits); it holds for subsets too.
  void use(AlgorithmTable table) { shared_->table = std::move(table); }
  [[nodiscard]] std::string_view transport_name() const noexcept { return transport_->name(); }

  /// Returns the table that depends on sizes alone.
  [[nodiscard]] static AlgorithmTable default_table();

  [[nodiscard]] std::string_view name() const noexcept override { return "ring"; }
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
  /// Holds what a backend shares with its subsets. Only one of these backends works at a time.
  struct Shared {
    AlgorithmTable table = default_table();
    FusionBuffer fused;
    FusionBuffer scratch;
    /// The transport notices an abort itself, but the operations of a single rank do not use it.
    Failure failure;
  };

  RingBackend(std::unique_ptr<Transport> transport, std::vector<int> host_of,
              std::shared_ptr<Shared> shared);

  [[nodiscard]] int size() const noexcept { return transport_->size(); }
  /// Reduces the tensors in fusion memory, and a single tensor where it lies.
  void reduce_together(const AllreduceCall& call, Deadline deadline);
  void run(const Reduction& job, Deadline deadline);
  [[nodiscard]] Staging staging();

  /// Returns the transport whose ranks are positions around the ring. It is used where it does not
  /// matter which rank owns which chunk, so that sums depend on the order of hosts alone.
  [[nodiscard]] Transport& around() noexcept { return reordered_ ? *reordered_ : *transport_; }

  std::unique_ptr<Transport> transport_;
  std::vector<int> host_of_;
  RingOrder order_;
  std::unique_ptr<Transport> reordered_;  // null where ranks are in order
  RingPlan plan_;                         // in the ranks of `around()`
  RingPlan block_plan_;                   // in the ranks of `transport_`; chunk r is rank r's block
  std::shared_ptr<Shared> shared_;
};

/// Does what the public function does, but ring, chain and tree run in the order of hosts.
[[nodiscard]] std::unique_ptr<Backend> make_ring_backend(std::unique_ptr<Transport> transport,
                                                         std::vector<int> host_of);

}  // namespace hvd::detail
