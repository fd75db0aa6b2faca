// Device memory by way of the host: for ranks that share a GPU, which NCCL refuses, and for the
// reductions that NCCL has not.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <hvd/core/backend.hpp>

#include "nccl/copier.hpp"
#include "nccl/cuda_event.hpp"
#include "nccl/cuda_stream.hpp"
#include "nccl/gpu_choice.hpp"
#include "nccl/pinned_buffer.hpp"

namespace hvd {

/// Inputs go to pinned memory in one launch, a backend of the host does the operation there, and
/// results come back in another. So every type, operation, scale and order of a sum is the host
/// backend's.
class PinnedBackend final : public Backend {
 public:
  /// `host`, over the same ranks, outlives this one.
  PinnedBackend(const GpuPlace& place, Backend& host, std::unique_ptr<Copier> copier);
  ~PinnedBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "pinned"; }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override;
  void after(DeviceEvent& ready, Deadline deadline) override;
  void allreduce(const AllreduceCall& call, Deadline deadline) override;
  void allgather(const AllgatherCall& call, Deadline deadline) override;
  void broadcast(const BroadcastCall& call, Deadline deadline) override;
  void reducescatter(const ReducescatterCall& call, Deadline deadline) override;
  void alltoall(const AlltoallCall& call, Deadline deadline) override;
  void barrier(Deadline deadline) override;
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int> ranks,
                                                Deadline deadline) override;
  [[nodiscard]] std::unique_ptr<Backend> split(std::span<const int> ranks, bool member,
                                               Deadline deadline) override;
  void abort() noexcept override;

 private:
  /// What exists only while our device is the current one.
  struct Resources {
    CudaStream stream;
    CudaEvent finished;
    PinnedBuffer memory;
  };

  /// What a backend and its subsets, of which one works at a time, have together.
  struct Shared {
    std::atomic<bool> aborted{false};
    std::exception_ptr first_error;
    std::unique_ptr<Copier> copier;
    std::optional<Resources> resources;
  };

  PinnedBackend(const GpuPlace& place, std::unique_ptr<Backend> host,
                std::shared_ptr<Shared> shared);
  [[nodiscard]] std::unique_ptr<Backend> over(std::span<const int> ranks,
                                              std::unique_ptr<Backend> host);

  /// With the device current; the first error sticks.
  void run(std::string_view phase, Deadline deadline, const std::function<void(Watch&)>& body);
  /// After an error: until nothing on the device writes to anybody's memory any more, bounded.
  void drain() noexcept;

  // Below: with the device current.
  /// Made when first needed: behind NCCL, most programs never do.
  [[nodiscard]] Resources& own();
  /// A place in the pinned memory for as many bytes; `begin` follows once all are known.
  [[nodiscard]] std::size_t place(std::size_t bytes);
  void begin();
  [[nodiscard]] std::byte* at(std::size_t place) const noexcept { return memory_ + place; }
  /// Remembers a copy for `transfer`, unless there is nothing on one of its sides.
  void copy(std::byte* dst, const std::byte* src, std::size_t size);
  /// Carries out what was remembered, and waits for it.
  void transfer(Watch& watch);

  GpuPlace place_;
  std::unique_ptr<Backend> owned_host_;  ///< of a subset
  Backend& host_;
  std::shared_ptr<Shared> shared_;
  std::vector<DeviceCopy> copies_;
  std::size_t size_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace hvd
