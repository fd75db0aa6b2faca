// Device memory over NCCL: the real thing behind make_nccl_backend.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <optional>

#include <hvd/core/backend.hpp>

#include "nccl/cuda_event.hpp"
#include "nccl/cuda_stream.hpp"
#include "nccl/device_buffer.hpp"
#include "nccl/nccl_comm.hpp"
#include "nccl/nccl_scaler.hpp"
#include "nccl/reduce_recipe.hpp"

namespace hvd {

struct NcclPlace {
  int rank = 0;
  int size = 1;
  int device = 0;  ///< of this process
};

class NcclBackend final : public Backend {
 public:
  /// Collective over the ranks that hold `id`.
  NcclBackend(const NcclPlace& place, const ncclUniqueId& id, Deadline deadline);
  ~NcclBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override;
  void allreduce(const AllreduceCall& call, Deadline deadline) override;
  void allgather(const AllgatherCall& call, Deadline deadline) override;
  void broadcast(const BroadcastCall& call, Deadline deadline) override;
  void barrier(Deadline deadline) override;
  void abort() noexcept override;

 private:
  /// What exists only while our device is the current one, in the order of its making.
  struct Resources {
    Resources(const ncclUniqueId& id, const NcclPlace& place, Watch& watch);

    CudaStream stream;
    CudaEvent finished;
    DeviceBuffer fusion;
    DeviceBuffer gathered;
    DeviceBuffer token;
    NcclScaler scaler;
    NcclComm comm;
  };

  /// Queues work on the stream with `enqueue` and returns when it is done; after an error the
  /// communicator is aborted and every later call throws that error again.
  void run(std::string_view phase, Deadline deadline, const std::function<void(Watch&)>& enqueue);
  void reduce(const ReduceRecipe& recipe, const std::byte* src, std::byte* dst, std::int64_t count,
              Watch& watch);
  void gather(const std::byte* src, std::byte* dst, std::span<const std::size_t> sizes,
              Watch& watch);
  /// After an abort: until nothing on the device writes to the caller's memory any more, bounded.
  void drain() noexcept;
  void copy(std::byte* dst, const std::byte* src, std::size_t size);

  NcclPlace place_;
  std::atomic<bool> aborted_{false};
  std::exception_ptr first_error_;
  std::optional<Resources> own_;
};

}  // namespace hvd
