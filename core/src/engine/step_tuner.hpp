// Rank 0, `HVD_AUTOTUNE`: measures the cycles of the frozen schedule and searches for better bucket
// sizes.
#pragma once

#include <cstdint>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <hvd/core/types.hpp>

#include "policy/autotuner.hpp"
#include "policy/frozen_schedule.hpp"
#include "policy/fusion_plan.hpp"

namespace hvd {

/// A trial is some cycles of one frozen schedule, or of several with the same sizes. A cycle lasts
/// from the beginning of its first collective on this rank to that of the next cycle's. Only the
/// schedules that move most bytes so far are measured; one that moves more starts the search anew.
class StepTuner {
 public:
  struct Settings {
    BucketSizes start;
    int cycles = 10;    ///< of a trial, at least 1
    std::string log{};  ///< a file; empty: none
  };

  /// Throws Errc::resource when the log cannot be written.
  explicit StepTuner(const Settings& settings);

  /// This schedule is frozen, with the sizes that hold now. Loop thread.
  void frozen(const FrozenSchedule& plan, std::uint32_t epoch);
  /// This rank begins a collective in this cycle of the schedule that was frozen in `epoch`. True
  /// when a trial is over, and `next` is expected. One thread at a time.
  [[nodiscard]] bool turn(std::uint32_t epoch, std::uint64_t cycle, Clock::time_point now);
  /// Other sizes from now on, so that what is frozen has to be thawed; nothing when the sizes stay.
  /// Loop thread.
  [[nodiscard]] std::optional<BucketSizes> next();

  [[nodiscard]] bool finished() const;
  /// What was found, in a line.
  [[nodiscard]] std::string summary() const;

 private:
  [[nodiscard]] bool trial_is_over() const { return std::ssize(seconds_) >= settings_.cycles; }
  void end_trial();

  const Settings settings_;
  std::ofstream log_;
  mutable std::mutex mutex_;
  Autotuner search_;
  std::size_t cycle_bytes_ = 0;  // of the schedules that are measured
  int trials_ = 0;
  // The trial.
  BucketSizes sizes_;
  std::vector<double> seconds_;
  std::optional<std::uint32_t> epoch_;  // nothing: what is frozen is not measured
  std::uint64_t cycle_ = 0;
  int warm_up_ = 0;  // cycles left that do not count
  std::optional<Clock::time_point> since_;
};

}  // namespace hvd
