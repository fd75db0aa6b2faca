// One seed, from the first event to the verdict.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "event_queue.hpp"
#include "faults.hpp"
#include "program.hpp"

namespace hvd::sim {

struct Outcome {
  std::string violation;  ///< empty: none
  std::uint64_t hash = 0;
  std::uint64_t events = 0;
  std::uint64_t collectives = 0;
  std::uint64_t turns = 0;  ///< collectives of a frozen schedule, over all ranks
  std::uint64_t freezes = 0;
  std::uint64_t thaws = 0;
  std::uint64_t control_messages = 0;
  Nanos virtual_time = 0;
  bool failed = false;  ///< the job, for a reason
  std::array<bool, kFaultKinds> faults{};
  std::array<bool, kTraitCount> traits{};
};

/// `ranks`: 0: drawn from the seed, 1 to 16.
[[nodiscard]] Outcome simulate(std::uint64_t seed, int ranks, bool verbose);

}  // namespace hvd::sim
