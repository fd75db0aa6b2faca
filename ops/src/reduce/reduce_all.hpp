// Reduces the contributions of all ranks in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Describes the operation on the contributions, and the factors on the result.
struct ReduceAll {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int divisor = 1;         ///< of the sum, for an average
  double postscale = 1.0;  ///< factor on the result
};

/// Streaming stores bypass the cache. They suit results that do not fit into it and are not read
/// again soon.
enum class Stores : std::uint8_t { cached, streamed };

/// Stores postscale · (from[0][i] op from[1][i] op …), computed from left to right, in to[k][i] for
/// every k. The arrays may have any alignment; a `to` may be a `from`, but does not overlap one
/// otherwise. f16 and bf16 are accumulated in float, divided, scaled, and rounded once, to nearest
/// even. A mean of integers is exact. For the rest `reduce`, `finish_average` and `scale` apply.
/// Streamed results are visible to a thread that sees a later release store of this thread.
void reduce_all(const ReduceAll& what, std::span<std::byte* const> to,
                std::span<const std::byte* const> from, std::int64_t count,
                Stores stores = Stores::cached);

}  // namespace hvd::detail
