// Provides a backend that moves no data.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include <hvd/core/internal/backend.hpp>

namespace hvd::test {

/// A backend whose operations do nothing and complete at once.
class IdleBackend : public Backend {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "idle"; }
  [[nodiscard]] bool supports(OpKind, Device, DType, ReduceOp) const noexcept override {
    return true;
  }
  void allreduce(const AllreduceCall&, Deadline) override {}
  void allgather(const AllgatherCall&, Deadline) override {}
  void broadcast(const BroadcastCall&, Deadline) override {}
  void reducescatter(const ReducescatterCall&, Deadline) override {}
  void alltoall(const AlltoallCall&, Deadline) override {}
  void barrier(Deadline) override {}
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int>, Deadline) override {
    return nullptr;
  }
  void abort() noexcept override {}
};

}  // namespace hvd::test
