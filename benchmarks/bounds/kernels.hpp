// Declares the two loops of the bounds, which use the machine's best SIMD instructions.
#pragma once

#include <cstddef>
#include <span>

namespace hvd::bounds {

/// Selects how results are stored. Streamed results bypass the caches, and their addresses are
/// multiples of 64.
enum class Store {
  cached,
  stream,
  stream_first,  ///< streams the first output only; the others are staging that is read soon
};

/// Selects whether inputs are prefetched. The hardware's prefetcher stops at page boundaries. But a
/// prefetched line that another core holds is fetched twice, once to read and once to write.
enum class Fetch { plain, ahead };

/// Sets every output to the sum of the inputs, added in order. An output may be an input but must
/// not overlap one otherwise. There are at least two inputs and one output.
void sum(std::span<const float* const> inputs, std::span<float* const> outputs, std::size_t count,
         Store store, Fetch fetch);

void copy(const float* from, float* to, std::size_t count, Store store, Fetch fetch);

}  // namespace hvd::bounds
