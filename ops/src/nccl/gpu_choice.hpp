// Which GPU this rank takes, and whether each rank has one of its own, as NCCL demands.
#pragma once

#include <optional>
#include <string>

#include <hvd/core/types.hpp>

namespace hvd {

class Session;

/// A rank of a group and its GPU.
struct GpuPlace {
  int rank = 0;
  int size = 1;
  int device = 0;  ///< of this process

  /// Whether that is meant: also by an index of -1, with which the coordinator says "yours" of a
  /// tensor that this rank has not, as it takes part in what others submitted.
  [[nodiscard]] bool owns(Device asked) const noexcept {
    return asked.kind == Device::Kind::cuda && (asked.index == device || asked.index == -1);
  }
};

struct GpuChoice {
  int device = 0;
  bool shared = false;  ///< some two ranks of the job would have the same GPU
};

/// Collective. The device of this rank, `local rank % visible devices`; empty on every rank when
/// some rank sees no GPU. Said by rank 0, once, when it is empty or some GPU is shared.
[[nodiscard]] std::optional<GpuChoice> choose_gpu(Session& session);

}  // namespace hvd
