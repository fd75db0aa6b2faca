// Counters of one context since it began.
#pragma once

#include <cstdint>

namespace hvd {

struct Stats {
  std::uint64_t submitted = 0;              ///< operations this rank submitted
  std::uint64_t completed = 0;              ///< of those, completed without error
  std::uint64_t failed = 0;                 ///< of those, completed with an error
  std::uint64_t collectives_started = 0;    ///< backend calls begun
  std::uint64_t collectives = 0;            ///< backend calls finished
  std::uint64_t fused_tensors = 0;          ///< tensors that shared a backend call with another
  std::uint64_t bytes = 0;                  ///< input bytes of the finished calls
  std::uint64_t control_messages_sent = 0;  ///< negotiation only, heartbeats not counted
  std::uint64_t control_messages_received = 0;
};

}  // namespace hvd
