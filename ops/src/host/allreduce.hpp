// Declares two of the three algorithms of an allreduce inside a host; the third is StagedAllreduce.
// All of them add up in rank order and round once, so they give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/internal/backend.hpp>

#include "fusion/buffer.hpp"
#include "host/arithmetic.hpp"
#include "host/group.hpp"
#include "host/tensor_list.hpp"

namespace hvd::detail {

/// Returns the name of a stage of `call`, which all ranks must have in common.
[[nodiscard]] std::uint64_t name_of(int stage, const AllreduceCall& call,
                                    std::int64_t total) noexcept;

/// Writes this rank's message of a small allreduce, in which every rank publishes its whole
/// contribution and reduces all of them in one turn. The tensors have at most `HostMessage::kLong`
/// bytes together.
void write_small(HostGroup& group, const AllreduceCall& call, std::int64_t total);
/// Publishes the message of `write_small`, unless the fence has carried it, and reduces all ranks'
/// messages.
void small_allreduce(HostGroup& group, const AllreduceCall& call, std::int64_t total,
                     FusionBuffer& scratch, Deadline deadline);

/// Describes tensors that lie in the arena of every rank.
struct DirectTensors {
  TensorList list;
  std::vector<const std::byte*> inputs;  ///< by tensor, and within a tensor by position
  std::vector<std::byte*> outputs;       ///< by tensor, and within a tensor by position

  void clear() noexcept {
    list.clear();
    inputs.clear();
    outputs.clear();
  }
};

/// Reduces this rank's part of the tensors straight from all ranks' arenas into all ranks' arenas:
/// a reduce-scatter and an all-gather in one. Of two ranks each has 2·S bytes of memory traffic, S
/// being the bytes of the tensors. All ranks have published where their tensors lie; the caller
/// returns only when all have finished.
void direct_allreduce(HostGroup& group, const DirectTensors& tensors,
                      const HostArithmetic& arithmetic);

}  // namespace hvd::detail
