// Host memory over several hosts: the real thing behind make_hierarchical_backend.
#pragma once

#include <memory>
#include <vector>

#include <hvd/core/backend.hpp>

#include "fusion/buffer.hpp"
#include "hierarchy/lanes.hpp"

namespace hvd {

class HierarchicalBackend final : public Backend {
 public:
  HierarchicalBackend(std::unique_ptr<Backend> flat, std::unique_ptr<Backend> host, Lanes lanes,
                      int ranks, Deadline deadline);

  [[nodiscard]] std::string_view name() const noexcept override { return "hierarchical"; }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override;
  void allreduce(const AllreduceCall& call, Deadline deadline) override;
  void allgather(const AllgatherCall& call, Deadline deadline) override {
    flat_->allgather(call, deadline);
  }
  void broadcast(const BroadcastCall& call, Deadline deadline) override {
    flat_->broadcast(call, deadline);
  }
  void reducescatter(const ReducescatterCall& call, Deadline deadline) override {
    flat_->reducescatter(call, deadline);
  }
  void alltoall(const AlltoallCall& call, Deadline deadline) override {
    flat_->alltoall(call, deadline);
  }
  void barrier(Deadline deadline) override { flat_->barrier(deadline); }
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int> ranks,
                                                Deadline deadline) override {
    return flat_->subset(ranks, deadline);
  }
  void abort() noexcept override;

 private:
  class Slices;
  [[nodiscard]] std::byte* reserve_absent(const AllreduceCall& call, ReduceOp op);

  const int ranks_;  // of all hosts
  std::unique_ptr<Backend> flat_;
  std::unique_ptr<Backend> host_;
  const Lanes lanes_;
  std::vector<std::unique_ptr<Backend>> across_;  // by this rank's lanes
  FusionBuffer slices_;
  FusionBuffer absent_;  // what a rank without data puts in, and where it throws results
};

}  // namespace hvd
