// Notices that two ranks of a host stay on the same CPU.
#pragma once

#include <chrono>
#include <cstdint>

#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Two ranks that share a CPU cannot run at the same time, so each begins to wait on this CPU, in
/// turn with the other. Ranks that only happen to be there one after the other do not, and the
/// kernel separates those that may run elsewhere within a few milliseconds. A rank publishes each
/// beginning of a wait that is not short, as a Place.
class SharedCpu {
 public:
  /// Tells on which CPU a rank began its last such wait, and how many there were, modulo 65536, so
  /// that others see when there is a new one. 0: none yet.
  using Place = std::uint32_t;

  static constexpr std::chrono::seconds kLong{1};
  static constexpr int kOften = 100;

  /// `rank` is the own one.
  explicit SharedCpu(int rank) noexcept : rank_(rank) {}

  [[nodiscard]] static Place next(Place before, unsigned cpu) noexcept {
    return (before & ~kCpu) + (kCpu + 1) + ((cpu + 1) & kCpu);
  }
  [[nodiscard]] static unsigned cpu_of(Place place) noexcept { return (place & kCpu) - 1; }

  /// Records that this rank has published `own` and waits for the rank `awaited`, which has
  /// published `theirs`. Returns true once: when this rank and a higher one have begun to wait on
  /// the same CPU for `kLong` and at least `kOften` times each.
  [[nodiscard]] bool begins_to_wait(Place own, int awaited, Place theirs,
                                    Clock::time_point now) noexcept;

 private:
  static constexpr Place kCpu = 0xffff;

  int rank_;
  int other_ = -1;  ///< the rank with which this one shares a CPU at present
  Place last_ = 0;  ///< of that rank
  int times_ = 0;
  Clock::time_point since_{};
  bool told_ = false;
};

}  // namespace hvd::detail
