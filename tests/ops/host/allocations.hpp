// Counts how often a thread allocates from the heap with `new`.
#pragma once

#include <cstdint>
#include <optional>

namespace hvd::test {

/// Returns the count since the calling thread began, or nothing where a sanitizer has the heap.
[[nodiscard]] std::optional<std::uint64_t> allocations() noexcept;

}  // namespace hvd::test
