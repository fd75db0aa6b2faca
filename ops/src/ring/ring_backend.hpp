// Host memory over a transport: the real thing behind make_ring_backend.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <hvd/core/backend.hpp>
#include <hvd/ops/transport.hpp>

#include "cost/ways.hpp"
#include "fusion/buffer.hpp"
#include "fusion/staging.hpp"
#include "ring/order.hpp"
#include "ring/plan.hpp"
#include "ring/reduction.hpp"

namespace hvd {

class RingBackend final : public Backend {
 public:
  /// `host_of`: the host of each rank, in whose order ring, chain and tree run; empty: rank order.
  explicit RingBackend(std::unique_ptr<Transport> transport, std::vector<int> host_of = {});

  /// Doubling or ring, by the bytes that a rank receives by doubling: the same on all ranks, though
  /// both give the same bits. Between calls; also of its subsets.
  void use(Ways ways) { shared_->ways = std::move(ways); }
  [[nodiscard]] std::string_view transport_name() const noexcept { return transport_->name(); }

  /// What depends on sizes alone.
  [[nodiscard]] static Ways default_ways();

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
  /// What a backend and its subsets, of which one works at a time, have together.
  struct Shared {
    Ways ways = default_ways();
    FusionBuffer fused;
    FusionBuffer scratch;
    std::atomic<bool> aborted{false};
  };

  RingBackend(std::unique_ptr<Transport> transport, std::vector<int> host_of,
              std::shared_ptr<Shared> shared);

  [[nodiscard]] int size() const noexcept { return transport_->size(); }
  /// A lone rank never enters its transport, which otherwise notices.
  void check() const;
  /// Through fusion memory, but for a single tensor.
  void reduce_together(const AllreduceCall& call, Deadline deadline);
  void run(const Reduction& job, Deadline deadline);
  [[nodiscard]] Staging staging();

  /// Ranks are positions there: for what does not care which rank owns which chunk, so that sums
  /// depend on the order of hosts alone.
  [[nodiscard]] Transport& around() noexcept { return reordered_ ? *reordered_ : *transport_; }

  std::unique_ptr<Transport> transport_;
  std::vector<int> host_of_;
  RingOrder order_;
  std::unique_ptr<Transport> reordered_;  // null where ranks are in order
  RingPlan plan_;                         // of `around()`
  RingPlan block_plan_;                   // of `transport_`, where chunks are ranks' own blocks
  std::shared_ptr<Shared> shared_;
};

/// As the public one, in the order of hosts.
[[nodiscard]] std::unique_ptr<Backend> make_ring_backend(std::unique_ptr<Transport> transport,
                                                         std::vector<int> host_of);

}  // namespace hvd
