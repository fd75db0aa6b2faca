// The three ways of an allreduce inside a host. All of them add up in rank order and round once:
// the bits do not tell which it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/backend.hpp>

#include "fusion/buffer.hpp"
#include "host/arithmetic.hpp"
#include "host/group.hpp"
#include "host/tensor_list.hpp"

namespace hvd {

/// Names what `call` is; see name_of.
[[nodiscard]] std::uint64_t name_of(int stage, const AllreduceCall& call,
                                    std::int64_t total) noexcept;

/// One turn: every rank publishes its whole contribution and reduces all of them. Together at most
/// `HostMessage::kLong` bytes. This writes the message.
void write_small(HostGroup& group, const AllreduceCall& call, std::int64_t total);
/// Publishes the message, unless it has gone with the fence, and does the rest.
void small_allreduce(HostGroup& group, const AllreduceCall& call, std::int64_t total,
                     FusionBuffer& scratch, Deadline deadline);

/// Tensors that lie in the arena of every rank.
struct DirectTensors {
  TensorList list;
  std::vector<const std::byte*> inputs;  ///< of the first tensor by position, of the second, …
  std::vector<std::byte*> outputs;       ///< likewise

  void clear() noexcept {
    list.clear();
    inputs.clear();
    outputs.clear();
  }
};

/// Reduces this rank's part of each straight from all ranks' memory into all ranks' memory: reduce
/// scatter and all-gather in one, 2·S bytes of traffic per rank of two. All ranks have come, and
/// none may return before all are through.
void direct_allreduce(HostGroup& group, const DirectTensors& tensors,
                      const HostArithmetic& arithmetic);

}  // namespace hvd
