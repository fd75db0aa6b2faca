// Device memory over NCCL: the real thing behind make_nccl_backends.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <hvd/core/backend.hpp>

#include "fusion/staging.hpp"
#include "nccl/comm_aborts.hpp"
#include "nccl/copier.hpp"
#include "nccl/cuda_event.hpp"
#include "nccl/cuda_stream.hpp"
#include "nccl/device_buffer.hpp"
#include "nccl/fusion_memory.hpp"
#include "nccl/gpu_choice.hpp"
#include "nccl/nccl_comm.hpp"
#include "nccl/pinned_buffer.hpp"
#include "nccl/reduce_recipe.hpp"

namespace hvd {

class NcclBackend final : public Backend {
 public:
  /// Collective over the ranks that hold `id`. Fused tensors go through `copier`.
  NcclBackend(const GpuPlace& place, const ncclUniqueId& id, Deadline deadline,
              std::unique_ptr<Copier> copier);
  ~NcclBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override;
  void after(DeviceEvent& ready, Deadline deadline) override;
  void let_fly() noexcept override { flies_ = true; }
  [[nodiscard]] std::unique_ptr<Flight> take_flight() noexcept override;
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
    FusionMemory fusion;
    DeviceBuffer unregistered;  ///< in place of a lone tensor that this rank has not
    DeviceBuffer token;         ///< what a barrier reduces
    PinnedBuffer mailbox;       ///< for the id of a subset
  };

  /// What a backend and its subsets, of which one works at a time, have together.
  struct Shared {
    std::atomic<bool> aborted{false};
    std::mutex mutex;  ///< of all that follows: flights are looked after while calls are made
    std::exception_ptr first_error;
    std::unique_ptr<Copier> copier;
    std::optional<Resources> resources;
    std::vector<NcclComm*> comms;                     ///< of all of them
    std::vector<std::unique_ptr<CudaEvent>> resting;  ///< marks that no flight needs
    CommAborts aborts;
  };
  using Lock = std::unique_lock<std::mutex>;

  /// Work on the stream up to a mark.
  class Flying final : public Flight {
   public:
    /// Of what is queued by now.
    Flying(NcclBackend& backend, const Watch& watch);
    [[nodiscard]] bool landed() override;
    /// As `landed`, for who has the lock.
    [[nodiscard]] bool look();
    /// Between two looks.
    void pause() { watch_.pause(); }

   private:
    NcclBackend& backend_;
    Watch watch_;
    std::unique_ptr<CudaEvent> end_;
  };

  NcclBackend(const GpuPlace& place, const ncclUniqueId& id, Deadline deadline,
              std::shared_ptr<Shared> shared);
  NcclBackend(const GpuPlace& place, std::unique_ptr<NcclComm> comm,
              std::shared_ptr<Shared> shared);

  /// Queues work on the stream with `enqueue` and returns when it is done, or at once when it is to
  /// fly.
  void run(std::string_view phase, Deadline deadline, const std::function<void(Watch&)>& enqueue);
  /// Runs `body` under the lock, with this device the current one. After an error the communicators
  /// are aborted, and every later call throws that error again.
  void guarded(const Lock& lock, const std::function<void()>& body);
  void give_up(std::exception_ptr error) noexcept;
  /// After an abort: until nothing on the device writes to the caller's memory any more, or then.
  void drain(Deadline deadline) noexcept;

  // Below: inside `run`.
  [[nodiscard]] Resources& own() noexcept { return *shared_->resources; }
  [[nodiscard]] cudaStream_t stream() noexcept { return own().stream.get(); }
  /// Until nothing flies.
  void land_all(Watch& watch);
  [[nodiscard]] std::byte* reserve(std::size_t size, Watch& watch);
  /// Memory that NCCL knows as little as that of a lone tensor.
  [[nodiscard]] std::byte* reserve_unregistered(std::size_t size, Watch& watch);
  [[nodiscard]] Staging staging(Watch& watch);
  /// Remembers a copy for `flush`.
  void copy(std::byte* dst, const std::byte* src, std::size_t size);
  /// Queues what was remembered, as one.
  void flush(const Treatment& treatment, Watch& watch);
  /// In place.
  void scale(DType dtype, double factor, std::byte* data, std::int64_t count, Watch& watch);
  /// Several calls of NCCL launched as one: `queue` passes each result on.
  using Queue = std::function<void(ncclResult_t)>;
  void grouped(std::string_view name, Watch& watch, const std::function<void(const Queue&)>& calls);
  /// `launch` calls NCCL with the recipe's operation.
  void reduce(const ReduceRecipe& recipe, Watch& watch,
              const std::function<void(ncclRedOp_t)>& launch);
  void gather(std::byte* data, std::span<const std::int64_t> bounds, Watch& watch);
  void scatter(const ReduceRecipe& recipe, const std::byte* src, std::byte* dst,
               std::span<const std::int64_t> bounds, std::size_t element, Watch& watch);

  GpuPlace place_;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<NcclComm> comm_;
  std::vector<DeviceCopy> copies_;  ///< remembered
  bool flies_ = false;              ///< the next call
  std::unique_ptr<Flight> flight_;  ///< of the last one
};

}  // namespace hvd
