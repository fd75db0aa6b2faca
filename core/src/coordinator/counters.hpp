// The live form of `Stats`: written by the submitting, loop and executor threads.
#pragma once

#include <atomic>
#include <cstdint>

#include <hvd/core/stats.hpp>

namespace hvd {

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

  [[nodiscard]] Stats read() const {
    return {submitted.load(),
            completed.load(),
            failed.load(),
            collectives_started.load(),
            collectives.load(),
            fused_tensors.load(),
            bytes.load(),
            control_messages_sent.load(),
            control_messages_received.load()};
  }
};

}  // namespace hvd
