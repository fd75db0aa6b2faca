// Paces the wait for an engine that can only be asked whether it is done. Between two tests a Watch
// yields the core and checks the clock and the abort flag.
#pragma once

#include <atomic>
#include <string_view>

#include <hvd/core/types.hpp>

namespace hvd::detail {

class Watch {
 public:
  /// `aborted` and the texts outlive the watch. `phase` is the operation as errors name it,
  /// `engine` names what is waited for, as "MPI".
  Watch(Deadline deadline, const std::atomic<bool>& aborted, std::string_view phase,
        std::string_view engine) noexcept;

  /// Throws Errc::aborted or Errc::timeout when it is time to give up.
  void check() const;
  /// Throws Errc::aborted after an abort.
  void check_abort() const;
  /// Begins anew, with as much time as at the beginning.
  void restart() noexcept;
  /// The caller calls it between two tests. It spins in the first calls, since most waits are
  /// short, and later yields the core, since the rank for which all others wait may need it. If a
  /// yield takes long, another program uses the core. Then it spins after each test that has moved
  /// data for half that time before the next yield, because a transfer in many steps would
  /// otherwise make one step in each slice of the other program. Throws as `check` does, after an
  /// abort at once.
  void pause();

  [[nodiscard]] std::string_view phase() const noexcept { return phase_; }
  [[nodiscard]] std::chrono::milliseconds elapsed() const noexcept;

 private:
  Deadline deadline_;
  const std::atomic<bool>* aborted_;
  std::string_view phase_;
  std::string_view engine_;
  Clock::time_point began_;
  Clock::time_point tested_;  // when the latest test began
  Clock::time_point yields_from_;
  Clock::duration longest_spin_{};
  unsigned pauses_ = 0;
};

}  // namespace hvd::detail
