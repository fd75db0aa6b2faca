// Counts what a thread asks of the C library that costs time: locks and clock readings.
#pragma once

#include <cstdint>
#include <optional>

namespace hvd::test {

struct CallCounts {
  std::uint64_t locks = 0;   ///< of mutexes
  std::uint64_t clocks = 0;  ///< readings
};

/// Since the calling thread began; nothing where a sanitizer has these functions.
[[nodiscard]] std::optional<CallCounts> call_counts() noexcept;

}  // namespace hvd::test
