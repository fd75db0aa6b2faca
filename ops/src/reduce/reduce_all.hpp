// The contributions of all ranks reduced at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hvd/core/types.hpp>

namespace hvd {

/// What to do with `from`, and with what becomes of it.
struct ReduceAll {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int divisor = 1;         ///< of the sum of an average
  double postscale = 1.0;  ///< factor on the result
};

/// Results that are not read again soon, and do not fit into the cache, may go past it.
enum class Stores : std::uint8_t { cached, streamed };

/// to[k][i] = postscale · (from[0][i] op from[1][i] op …) for every k: any alignment; a `to` may be
/// a `from`, but overlap none otherwise. From left to right. f16 and bf16 are accumulated in float,
/// divided, scaled, and rounded once, to nearest even; a mean of integers is exact; otherwise as
/// `reduce`, `finish_average` and `scale` say. What was streamed is visible to whoever sees a later
/// release store of this thread.
void reduce_all(const ReduceAll& what, std::span<std::byte* const> to,
                std::span<const std::byte* const> from, std::int64_t count,
                Stores stores = Stores::cached);

}  // namespace hvd
