// Holds the live form of `Stats`, which the submitting, loop and executor threads write.
#pragma once

#include <atomic>
#include <cstdint>

#include <hvd/core/stats.hpp>

namespace hvd::detail {

/// Adds to a counter that only the thread which runs a batch writes, so one thread at a time.
inline void count_up(std::atomic<std::uint64_t>& counter, std::uint64_t more = 1) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

struct Counters {
  std::atomic<std::uint64_t> submitted{0};
  std::atomic<std::uint64_t> completed{0};
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> collectives_started{0};
  std::atomic<std::uint64_t> collectives{0};
  std::atomic<std::uint64_t> fused_tensors{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> control_messages_sent{0};
  std::atomic<std::uint64_t> control_messages_received{0};
  std::atomic<std::uint64_t> fused_bytes{0};
  std::atomic<std::uint64_t> stall_warnings{0};
  std::atomic<std::uint64_t> schedule_hits{0};
  std::atomic<std::uint64_t> freezes{0};
  std::atomic<std::uint64_t> thaws{0};

  [[nodiscard]] Stats read() const {
    Stats stats;
    stats.submitted = submitted.load();
    stats.completed = completed.load();
    stats.failed = failed.load();
    stats.collectives_started = collectives_started.load();
    stats.collectives = collectives.load();
    stats.fused_tensors = fused_tensors.load();
    stats.bytes = bytes.load();
    stats.control_messages_sent = control_messages_sent.load();
    stats.control_messages_received = control_messages_received.load();
    stats.fused_bytes = fused_bytes.load();
    stats.stall_warnings = stall_warnings.load();
    stats.schedule_hits = schedule_hits.load();
    stats.freezes = freezes.load();
    stats.thaws = thaws.load();
    return stats;
  }
};

}  // namespace hvd::detail
