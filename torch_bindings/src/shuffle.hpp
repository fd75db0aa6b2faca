// An order that depends on seed and epoch alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd {

/// The same on every machine and standard library.
void shuffle(std::vector<std::size_t>& values, std::uint64_t seed, std::size_t epoch);

}  // namespace hvd
