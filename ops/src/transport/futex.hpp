// futex(2) on memory shared between processes.
#pragma once

#include <atomic>
#include <cstdint>

#include <hvd/core/types.hpp>

namespace hvd {

/// Returns when woken, at once when `word` is not `expected`, or about at `until`; spuriously too.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline until) noexcept;
void futex_wake_all(std::atomic<std::uint32_t>& word) noexcept;

}  // namespace hvd
