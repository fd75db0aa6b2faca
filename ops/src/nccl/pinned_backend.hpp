// Implements collectives on device memory through the host, for ranks that share a GPU, which NCCL
// refuses, and for the reductions that NCCL does not have.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <hvd/core/internal/backend.hpp>

#include "nccl/copier.hpp"
#include "nccl/cuda.hpp"
#include "nccl/gpu_choice.hpp"
#include "transport/failure.hpp"

namespace hvd::detail {

/// Copies inputs to pinned memory in one launch, runs the operation there with a backend of the
/// host, and copies results back in another launch. Types, operations, scales and the order of a
/// sum are therefore those of the host's backend. Large allreduces and broadcasts of several
/// tensors are done in stages, so that the device copies one stage while the host reduces another.
class PinnedBackend final : public Backend {
 public:
  /// `host` has the same ranks and outlives this backend.
  PinnedBackend(const GpuRank& self, Backend& host, std::unique_ptr<Copier> copier);
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
  void abort() noexcept override;

 private:
  /// These are made and destroyed while this backend's device is the current one.
  struct Resources {
    CudaStream stream;
    CudaEvent finished;
    std::array<CudaEvent, 2> arrived;  ///< the inputs of two stages, in turns
    PinnedBuffer memory;
  };

  /// Holds what a backend shares with its subsets. Only one of these backends works at a time.
  struct Shared {
    Failure failure;
    std::unique_ptr<Copier> copier;
    std::optional<Resources> resources;
  };

  /// Describes the memory of one tensor of a call, on the device or in pinned memory. An input or
  /// output that is null is not copied.
  struct Part {
    const std::byte* input;
    std::size_t input_bytes;
    std::byte* output;
    std::size_t output_bytes;
  };

  PinnedBackend(const GpuRank& self, std::unique_ptr<Backend> host, std::shared_ptr<Shared> shared);

  /// Runs `body` with the device current. After an error every later call throws that error.
  void run(std::string_view phase, Deadline deadline, const std::function<void(Watch&)>& body);
  /// Runs an operation on parts as they lie in pinned memory. `first` is the index of the first of
  /// them in the call.
  using OnHost = std::function<void(std::span<const Part> pinned, std::size_t first)>;
  /// Copies the inputs of `parts` to pinned memory, calls `collective` for them, and copies the
  /// outputs back. With `in_place` an output takes the place of its input, and there is a call for
  /// each stage; otherwise there is one for all. Without `f32_of`, the device's memory has what
  /// pinned memory has; otherwise it has f32 in place of that type.
  void through_host(std::string_view phase, std::span<const Part> parts, bool in_place,
                    Deadline deadline, const OnHost& collective,
                    std::optional<DType> f32_of = std::nullopt);
  /// Returns the size of this rank's count of elements.
  [[nodiscard]] std::size_t own_bytes(std::span<const std::int64_t> counts, DType dtype) const;
  /// The backend calls it after an error. It waits, for a bounded time, until nothing on the device
  /// writes to memory any more. Returns false when something still may.
  void drain() noexcept;

  // The functions below are called with the device current.
  /// Makes the resources when they are first needed. Where NCCL runs most operations, most programs
  /// never need them.
  [[nodiscard]] Resources& own();
  /// Allots `bytes` of the pinned memory and returns their offset. `begin` follows once all parts
  /// of a call are allotted.
  [[nodiscard]] std::size_t allot(std::size_t bytes);
  void begin();
  [[nodiscard]] std::byte* at(std::size_t offset) const noexcept { return memory_ + offset; }
  /// Adds a copy for `queue_copies`, unless one of its pointers is null.
  void copy(std::byte* dst, const std::byte* src, std::size_t size);
  /// Queues the copies that were added, and then `event`.
  void queue_copies(const ElementOp& element_op, CudaEvent& event, Watch& watch);

  GpuRank self_;
  std::unique_ptr<Backend> owned_host_;  ///< the host's backend of a subset
  Backend& host_;
  std::shared_ptr<Shared> shared_;
  std::vector<DeviceCopy> copies_;
  std::size_t size_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace hvd::detail
