// Runs one seed of an elastic job, and adds up many.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "elastic/plan.hpp"

namespace hvd::sim::elastic {

struct Outcome {
  std::string violation;  ///< empty: none
  std::uint64_t hash = 0;
  std::uint64_t events = 0;
  std::uint64_t steps = 0;
  std::uint64_t generations = 0;
  int code = 0;
  bool rank_0_struck = false;
  std::array<bool, kFaultKinds> faults{};
};

/// `ranks`: 0: drawn from the seed, 1 to 8.
[[nodiscard]] Outcome simulate(std::uint64_t seed, int ranks, bool verbose);

struct Totals {
  std::uint64_t seeds = 0;
  std::uint64_t events = 0;
  std::uint64_t steps = 0;
  std::uint64_t generations = 0;
  std::uint64_t several = 0;  ///< jobs with two or more faults
  std::uint64_t rank_0_struck = 0;
  std::uint64_t successes = 0;
  std::uint64_t retries = 0;  ///< that ended with 75
  std::uint64_t hash = 0;
  std::array<std::uint64_t, kFaultKinds> faults{};

  void add(const Outcome& outcome);
  [[nodiscard]] std::string text(std::chrono::duration<double> wall) const;
  /// Returns what never occurred; empty when all did.
  [[nodiscard]] std::string missing() const;
};

}  // namespace hvd::sim::elastic
