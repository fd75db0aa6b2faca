// Counts a thread's mutex locks and clock readings, which take time.
#pragma once

#include <cstdint>
#include <optional>

namespace hvd::test {

struct CallCounts {
  std::uint64_t locks = 0;   ///< of mutexes
  std::uint64_t clocks = 0;  ///< readings
};

/// Returns the counts since the calling thread began, or nothing when a sanitizer replaces these
/// functions.
[[nodiscard]] std::optional<CallCounts> call_counts() noexcept;

}  // namespace hvd::test
