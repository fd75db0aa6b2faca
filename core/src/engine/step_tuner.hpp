// With `HVD_AUTOTUNE` rank 0 measures the cycles of the frozen schedule and searches for better
// bucket sizes.
#pragma once

#include <cstdint>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/thread_pool.hpp>

#include <hvd/core/types.hpp>

#include "policy/autotuner.hpp"
#include "policy/frozen_schedule.hpp"
#include "policy/fusion_plan.hpp"

namespace hvd::detail {

/// A trial measures a number of cycles of one frozen schedule, or of several with the same sizes. A
/// cycle lasts from the begin of its first collective on this rank to that of the next cycle. Only
/// the schedules that move most bytes so far are measured; one that moves more starts a new search.
class StepTuner {
 public:
  struct Settings {
    BucketSizes start;
    int cycles = 10;    ///< of a trial, at least 1
    std::string log{};  ///< a file; empty: none
  };

  /// Throws Errc::resource when the log cannot be written.
  explicit StepTuner(const Settings& settings);
  /// Waits until the log is written.
  ~StepTuner();
  StepTuner(const StepTuner&) = delete;
  StepTuner& operator=(const StepTuner&) = delete;

  /// Records that the ranks have frozen this schedule, with the current sizes. Only the loop thread
  /// may call it.
  void frozen(const FrozenSchedule& plan, std::uint32_t epoch);
  /// Must be called when this rank begins a collective of a frozen schedule. `epoch` says which
  /// freeze, and `cycle` how often the schedule has been repeated since. Returns true when a trial
  /// is over; the caller then calls `next`. One thread at a time may call it.
  [[nodiscard]] bool turn(std::uint32_t epoch, std::uint64_t cycle, Clock::time_point now);
  /// Ends a trial. Returns the sizes from now on, for which the schedule has to be thawed, or
  /// nothing when the sizes stay. Only the loop thread may call it.
  [[nodiscard]] std::optional<BucketSizes> next();

  [[nodiscard]] bool finished() const;
  /// Returns the result of the search as a line of text.
  [[nodiscard]] std::string summary() const;

 private:
  [[nodiscard]] bool trial_is_over() const { return std::ssize(seconds_) >= settings_.cycles; }
  void end_trial();

  const Settings settings_;
  std::ofstream log_;
  // Writes the log on a thread of its own, because the loop thread, which sends heartbeats, must
  // not wait for a disk. Empty without a log.
  std::optional<boost::asio::thread_pool> writer_;
  mutable std::mutex mutex_;
  Autotuner search_;
  std::size_t cycle_bytes_ = 0;  // bytes that a cycle of the measured schedules moves
  int trials_ = 0;
  // These belong to the current trial.
  BucketSizes sizes_;
  std::vector<double> seconds_;
  std::optional<std::uint32_t> epoch_;  // empty while the frozen schedule is not measured
  std::uint64_t cycle_ = 0;
  int warm_up_ = 0;  // cycles left that do not count
  std::optional<Clock::time_point> since_;
};

}  // namespace hvd::detail
