// The three ways of an allreduce inside a host. All of them add up in rank order and round once:
// the bits do not tell which it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/backend.hpp>

#include "fusion/arithmetic.hpp"
#include "fusion/buffer.hpp"
#include "host/group.hpp"
#include "host/tensor_list.hpp"
#include "reduce/reduce_all.hpp"

namespace hvd {

/// What every element goes through.
class HostArithmetic {
 public:
  HostArithmetic(const AllreduceCall& call, int ranks) noexcept
      : asked_(Arithmetic::of(call, ranks)) {}

  [[nodiscard]] std::size_t element() const noexcept { return size_of(asked_.dtype); }
  /// Elements of a cache line.
  [[nodiscard]] std::int64_t line() const noexcept {
    return static_cast<std::int64_t>(64 / element());
  }
  /// Whether contributions are what the caller gives, but for absent ones.
  [[nodiscard]] bool as_given() const noexcept { return asked_.prescale == 1.0; }
  /// A contribution: `count` elements times prescale; of an absent rank the identity.
  void load(std::byte* to, const std::byte* from, std::int64_t count) const;
  [[nodiscard]] ReduceAll reduction() const noexcept {
    return {asked_.dtype, asked_.op, asked_.divisor, asked_.postscale};
  }

 private:
  Arithmetic asked_;
};

/// The number that says what an operation is: ranks that are at different ones notice.
[[nodiscard]] std::uint64_t name_of(OpKind kind, int stage, const AllreduceCall& call,
                                    std::int64_t total) noexcept;

/// One turn: everybody says all it has and reduces all it heard. Together at most
/// `HostMessage::kLong` bytes.
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
