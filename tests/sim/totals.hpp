// The sums over many seeds.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "simulation.hpp"

namespace hvd::sim {

struct Totals {
  std::uint64_t seeds = 0;
  std::uint64_t events = 0;
  std::uint64_t collectives = 0;
  std::uint64_t turns = 0;
  std::uint64_t freezes = 0;
  std::uint64_t thaws = 0;
  std::uint64_t control_messages = 0;
  std::uint64_t frozen_runs = 0;  ///< runs that froze at least once
  std::uint64_t failed_runs = 0;
  std::uint64_t trees = 0;
  std::uint64_t relays_struck = 0;
  std::uint64_t low_relays_struck = 0;  ///< those whose parent is a relay
  std::uint64_t merged_messages = 0;
  Nanos virtual_time = 0;
  std::uint64_t hash = 0;  ///< trace hash of all runs, in order
  std::array<std::uint64_t, kFaultKinds> faults{};
  std::array<std::uint64_t, kTraitCount> traits{};

  void add(const Outcome& outcome);
  [[nodiscard]] std::string text(std::chrono::duration<double> wall) const;
  /// Returns the features and faults that never occurred; empty when all did.
  [[nodiscard]] std::string missing() const;
};

}  // namespace hvd::sim
