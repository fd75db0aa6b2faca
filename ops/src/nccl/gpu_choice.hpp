// Chooses the GPU of this rank, and tells whether each rank has one of its own, as NCCL requires.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <hvd/core/types.hpp>

namespace hvd {
class Session;
}

namespace hvd::detail {

/// The GPU of a rank, which its first tensor on a GPU decides. Copies share the decision. Any
/// thread may call it.
class OwnGpu {
 public:
  /// The GPU is decided already.
  OwnGpu(int device) : OwnGpu(device, device) {}  // NOLINT(google-explicit-constructor)
  /// `usual` is the GPU of a rank that takes part in operations of others before it has a tensor.
  [[nodiscard]] static OwnGpu undecided(int usual) { return {kUndecided, usual}; }

  /// Tells whether this is `device`, and decides it if nothing has.
  [[nodiscard]] bool decide(int device) const noexcept {
    int decided = kUndecided;
    return state_->device.compare_exchange_strong(decided, device) || decided == device;
  }
  [[nodiscard]] int index() const noexcept {
    static_cast<void>(decide(state_->usual));
    return state_->device;
  }

 private:
  static constexpr int kUndecided = -1;
  struct State {
    std::atomic<int> device;
    const int usual;
  };

  OwnGpu(int device, int usual) : state_(new State{device, usual}) {}

  std::shared_ptr<State> state_;
};

/// Describes a rank of a group and its GPU.
struct GpuRank {
  int rank = 0;
  int size = 1;
  OwnGpu gpu;
  int host = 0;  ///< the number of its host

  /// Tells whether tensors on `asked` are reduced by this rank, whose GPU it decides. An index of
  /// -1 means the rank's own: the coordinator uses that for a tensor that this rank does not have,
  /// when it takes part in an operation of others.
  [[nodiscard]] bool owns(Device asked) const noexcept {
    return asked.kind == Device::Kind::cuda && (asked.index == -1 || gpu.decide(asked.index));
  }
  /// Returns this rank as one of `ranks`, which are some of the group.
  [[nodiscard]] GpuRank in(std::span<const int> ranks) const;
};

struct GpuChoice {
  int device = 0;
  bool shared = false;  ///< two ranks of the job would use the same GPU
};

/// Returns a name that two ranks of a communicator must not have in common: the PCI bus id of the
/// device, which is the same in all processes of a host. If the user lets ranks share a GPU
/// (NCCL_MULTI_RANK_GPU_ENABLE=1, from NCCL 2.30 on), the process id follows. Threads of one
/// process may not share it: to free memory waits for kernels that run, which may wait for this
/// rank.
[[nodiscard]] std::string name_of_gpu(int device);

/// Returns the usual device of this rank, `local rank % visible devices`, or nothing on every rank
/// when some rank sees no GPU. Rank 0 logs when there is none or some GPU is shared, and a rank
/// with an error of CUDA warns. Collective.
[[nodiscard]] std::optional<GpuChoice> choose_gpu(Session& session);

}  // namespace hvd::detail
