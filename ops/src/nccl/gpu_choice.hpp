// Chooses the GPU of this rank, and tells whether each rank has one of its own, as NCCL requires.
#pragma once

#include <optional>
#include <string>

#include <hvd/core/types.hpp>

namespace hvd {
class Session;
}

namespace hvd::detail {

/// Describes a rank of a group and its GPU.
struct GpuRank {
  int rank = 0;
  int size = 1;
  int device = 0;  ///< of this process

  /// Tells whether `asked` is this GPU. An index of -1 means it too: the coordinator uses that for
  /// a tensor that this rank does not have, when it takes part in an operation of others.
  [[nodiscard]] bool owns(Device asked) const noexcept {
    return asked.kind == Device::Kind::cuda && (asked.index == device || asked.index == -1);
  }
};

struct GpuChoice {
  int device = 0;
  bool shared = false;  ///< two ranks of the job would use the same GPU
};

/// Returns the device of this rank, `local rank % visible devices`, or nothing on every rank when
/// some rank sees no GPU. Rank 0 logs when there is none or some GPU is shared. Collective.
[[nodiscard]] std::optional<GpuChoice> choose_gpu(Session& session);

}  // namespace hvd::detail
