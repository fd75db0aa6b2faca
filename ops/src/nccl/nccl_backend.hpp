// Implements collectives on device memory over NCCL. make_nccl_backends makes it.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <hvd/core/internal/backend.hpp>

#include "fusion/staging.hpp"
#include "nccl/copier.hpp"
#include "nccl/cuda.hpp"
#include "nccl/fusion_memory.hpp"
#include "nccl/gpu_choice.hpp"
#include "nccl/nccl_comm.hpp"
#include "nccl/reduce_recipe.hpp"

namespace hvd::detail {

class NcclBackend final : public Backend {
 public:
  /// The first call starts NCCL, whose ranks meet over `host`, and so does that of each subset.
  /// `host` has the same ranks and outlives this backend. `copier` copies fused tensors.
  NcclBackend(const GpuRank& self, Backend& host, std::unique_ptr<Copier> copier);
  ~NcclBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override;
  void after(DeviceEvent& ready, Deadline deadline) override;
  [[nodiscard]] bool starts() const noexcept override { return !comm_; }
  void allow_async() noexcept override { async_allowed_ = true; }
  [[nodiscard]] std::unique_ptr<AsyncCollective> take_async() noexcept override;
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
    FusionMemory fusion;
    DeviceBuffer unregistered;  ///< replaces tensors that are not packed, where this rank has none
    DeviceBuffer token;         ///< the value that a barrier reduces
  };

  /// Holds what a backend shares with its subsets. Only one of these backends works at a time.
  struct Shared {
    Shared(int own_rank, std::unique_ptr<Copier> own_copier) noexcept
        : rank(own_rank), copier(std::move(own_copier)) {}

    const int rank;  ///< of this process in the context
    std::atomic<bool> aborted{false};
    std::mutex mutex;  ///< guards the members below: one thread may poll while another makes a call
    std::exception_ptr first_error;
    std::unique_ptr<Copier> copier;
    std::optional<Resources> resources;
    std::vector<NcclComm*> comms;  ///< those of the backend and of its subsets
    /// Those of calls that are complete. A thread may still hold one, to let a stream wait for it.
    std::vector<std::shared_ptr<CudaEvent>> free_events;
    CommAborts aborts;
  };
  using Lock = std::unique_lock<std::mutex>;

  /// Represents a call that is complete when an event, recorded behind its work on the stream, has
  /// occurred.
  class QueuedCall final : public AsyncCollective {
   public:
    /// Records the event.
    QueuedCall(NcclBackend& backend, const Watch& watch);
    [[nodiscard]] bool try_complete() override;
    [[nodiscard]] std::shared_ptr<void> end() const override { return {end_, end_->get()}; }
    /// Asks once whether the call is complete. The caller holds the lock.
    [[nodiscard]] bool poll();
    /// Waits a little between two polls.
    void pause() { watch_.pause(); }

   private:
    NcclBackend& backend_;
    Watch watch_;
    bool is_oldest_ = false;  ///< only the oldest call is polled, whose time then begins
    std::shared_ptr<CudaEvent> end_;
  };

  NcclBackend(const GpuRank& self, std::unique_ptr<Backend> host, std::shared_ptr<Shared> shared);

  /// Queues work on the stream with `enqueue` and returns when it is done, or at once when the call
  /// may be asynchronous.
  void run(std::string_view phase, Deadline deadline, const std::function<void(Watch&)>& enqueue);
  /// Runs `body` under the lock, with this device the current one. After an error the communicators
  /// are aborted, and every later call throws that error again. An abort is noticed before any call
  /// of CUDA, which could block behind a kernel that hangs.
  void guarded(const Lock& lock, const Watch& watch, const std::function<void()>& body);
  void give_up(std::exception_ptr error) noexcept;
  [[nodiscard]] std::exception_ptr with_culprit(std::exception_ptr error) const;

  /// Closes the communicator. The caller holds the lock.
  void close();

  // The functions below are called inside `guarded`.
  /// Makes the resources when they are first needed. Programs for CPUs never need them.
  [[nodiscard]] Resources& own();
  void start(Deadline deadline, Watch& watch);
  [[nodiscard]] cudaStream_t stream() { return own().stream.get(); }
  /// Waits until every queued call is complete.
  void complete_all(Watch& watch);
  [[nodiscard]] std::byte* reserve(std::size_t size, Watch& watch);
  /// Returns memory that is not registered with NCCL, like that of a single tensor.
  [[nodiscard]] std::byte* reserve_unregistered(std::size_t size, Watch& watch);
  [[nodiscard]] Staging staging(Watch& watch);
  /// Adds a copy, which `flush` queues.
  void copy(std::byte* dst, const std::byte* src, std::size_t size);
  /// Queues the copies that were added, in one launch.
  void flush(const ElementOp& element_op, Watch& watch);
  /// Scales `data` in place.
  void scale(DType dtype, double factor, std::byte* data, std::int64_t count, Watch& watch);
  /// Launches several calls of NCCL as one. `calls` passes the result of each call to its argument.
  using Queue = std::function<void(ncclResult_t)>;
  void grouped(std::string_view name, Watch& watch, const std::function<void(const Queue&)>& calls);
  /// Describes one of the allreduces that are launched together.
  struct Reduction {
    const std::byte* src = nullptr;
    std::byte* dst = nullptr;
    std::size_t count = 0;   ///< elements
    bool is_packed = false;  ///< whether it lies in the fusion memory
  };
  /// Launches `reductions` as one call of NCCL. The two recipes are for packed tensors and others.
  void all_reduce(std::span<const Reduction> reductions, const ReduceRecipe& packed,
                  const ReduceRecipe& in_place, Watch& watch);
  /// Reduces by `launch`, which calls NCCL with the recipe's operation.
  void reduce(const ReduceRecipe& recipe, Watch& watch,
              const std::function<void(ncclRedOp_t)>& launch);
  void gather(std::byte* data, std::span<const std::int64_t> bounds, Watch& watch);
  void scatter(const ReduceRecipe& recipe, const std::byte* src, std::byte* dst,
               std::span<const std::int64_t> bounds, std::size_t element, Watch& watch);

  GpuRank self_;
  std::unique_ptr<Backend> owned_host_;  ///< the host's backend of a subset
  Backend& host_;
  std::shared_ptr<Shared> shared_;
  std::unique_ptr<NcclComm> comm_;          ///< null until NCCL is started
  std::vector<DeviceCopy> copies_;          ///< those added since the last `flush`
  bool async_allowed_ = false;              ///< whether the next call may be asynchronous
  std::unique_ptr<AsyncCollective> async_;  ///< what `take_async` returns for the last call
};

}  // namespace hvd::detail
