// Runs one seed, from the first event to the verdict.
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
  std::uint64_t merged_messages = 0;  ///< messages that were combined with another one
  bool failed = false;                ///< the job failed for a valid reason
  bool tree = false;                  ///< some rank is a relay
  int relay_struck = 0;  ///< the level of a relay that a fault hit which may end a job; 0: none
  std::array<bool, kFaultKinds> faults{};
  std::array<bool, kTraitCount> traits{};
};

/// Choices that the caller may fix.
struct Shape {
  int ranks = 0;  ///< 0: drawn from the seed, 1 to 30
  /// The most children of a rank in the control tree; 0 means a star. Without a value it is drawn
  /// from the seed, unless `ranks` is given, which means a star.
  std::optional<int> fanout;
};

[[nodiscard]] Outcome simulate(std::uint64_t seed, const Shape& shape, bool verbose);

}  // namespace hvd::sim
