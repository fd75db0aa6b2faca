// The two loops of the bounds, in the best SIMD of the machine.
#pragma once

#include <cstddef>
#include <span>

namespace hvd::bounds {

/// How results are stored. Streamed ones go past the caches: their addresses are multiples of 64.
enum class Store {
  cached,
  stream,
  stream_first,  ///< the first output only; the others are staging that somebody reads soon
};

/// Whether inputs are asked for before they are due: hardware stops at each page; but a line that
/// another core has is then fetched twice, to be read and to be written.
enum class Fetch { plain, ahead };

/// Every output becomes the sum of the inputs, added in order. An output is an input or overlaps
/// none. At least two inputs, one output.
void sum(std::span<const float* const> inputs, std::span<float* const> outputs, std::size_t count,
         Store store, Fetch fetch);

void copy(const float* from, float* to, std::size_t count, Store store, Fetch fetch);

}  // namespace hvd::bounds
