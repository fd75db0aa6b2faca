// Counts what a thread takes from the heap with `new`.
#pragma once

#include <cstdint>
#include <optional>

namespace hvd::test {

/// Since the calling thread began; nothing where a sanitizer has the heap.
[[nodiscard]] std::optional<std::uint64_t> allocations() noexcept;

}  // namespace hvd::test
