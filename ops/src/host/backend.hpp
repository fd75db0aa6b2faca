// Implements the backend of ranks that share the memory of a host. make_host_engine makes it.
#pragma once

#include <memory>
#include <utility>

#include <hvd/core/internal/backend.hpp>

#include "fusion/buffer.hpp"
#include "host/arena.hpp"
#include "host/placement.hpp"
#include "host/shared.hpp"
#include "host/staged.hpp"

namespace hvd::detail {

/// Holds what a backend shares with its subsets. Only one of these backends works at a time.
struct HostMemory {
  explicit HostMemory(std::shared_ptr<HostShared> with)
      : shared(std::move(with)), arena(std::make_shared<HostArena>(shared->own)) {}

  std::shared_ptr<HostShared> shared;
  std::shared_ptr<HostArena> arena;
  FusionBuffer scratch;
  ArenaPlacement placement;
  Exposure exposure{*arena, placement, shared->rank};
};

class HostBackend final : public Backend {
 public:
  HostBackend(std::shared_ptr<HostMemory> memory, std::shared_ptr<HostGroup> group)
      : memory_(std::move(memory)), group_(std::move(group)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "host"; }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override;
  void announce(const AllreduceCall& call, std::uint64_t sequence) override;
  void retract() noexcept override;
  void abandon() noexcept override;
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
  template <class Call>
  using Exchange = void (*)(HostGroup&, const HostArena&, const Call&, Deadline);

  /// Throws the error of a failed call once no other rank can write to this rank's tensors.
  template <class Body>
  void guard(Body body);
  template <class Call>
  void exchange(Exchange<Call> operation, const Call& call, Deadline deadline);
  [[nodiscard]] int size() const noexcept { return group_->size(); }
  void reduce_alone(const AllreduceCall& call) const;
  [[nodiscard]] bool is_small(const AllreduceCall& call, std::int64_t total) const noexcept;
  void locate(const AllreduceCall& call);
  /// Returns a staged allreduce of `tensors`, which are some or all of those of `call`.
  [[nodiscard]] StagedAllreduce stage(const AllreduceCall& call,
                                      std::span<const TensorSlice> tensors, Deadline deadline);
  void reduce_large(const AllreduceCall& call, Deadline deadline);

  std::shared_ptr<HostMemory> memory_;
  std::shared_ptr<HostGroup> group_;
  std::uint64_t copied_ahead_ = 0;  ///< what copy_ahead returned for the announced call
};

}  // namespace hvd::detail
