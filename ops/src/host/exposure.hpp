// What of this rank's arena the others may be reading and writing, and how that ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "host/host_arena.hpp"
#include "host/residency.hpp"

namespace hvd {

/// From when the others are told where this rank's tensors lie until all are through with them,
/// whoever has not come yet may come later, and write: also a rank that was stopped and goes on
/// when this one has given it up. So whoever gives up takes them back first, as pages of its own.
/// The others keep what was there: who is not late for everybody gets what this rank has given, and
/// not what it does next. One thread at a time, unless said otherwise.
class Exposure {
 public:
  /// All outlive it. `rank` is for the log.
  Exposure(HostArena& arena, const Residency& residency, int rank) noexcept
      : arena_(arena), residency_(residency), rank_(rank) {}

  /// Before the others are told what `residency` has seen, of a call that may not come. Look
  /// afterwards whether it was aborted: `abort` saw either this, or nothing.
  void announce() noexcept;
  /// It does not come, for nobody.
  void retract() noexcept;
  /// The call begins, announced or not; as `announce`, before the others are told.
  void begin() noexcept;
  /// All are through.
  void end() noexcept;

  /// After the abort is known: takes back what is announced and not begun, which nobody else may
  /// come to do. What is begun is left to its thread. Any thread.
  void abort() noexcept;
  /// Takes back whatever there is; for good. Any thread; returns when it is done, whoever does it.
  void give_up() noexcept;
  [[nodiscard]] bool given_up() const noexcept { return state_.load() == State::given_up; }

 private:
  enum class State : std::uint8_t { none, announced, begun, given_up };

  void take_back() const noexcept;

  HostArena& arena_;
  const Residency& residency_;
  const int rank_;
  std::mutex mutex_;  ///< of those that take back
  std::atomic<State> state_{State::none};
};

}  // namespace hvd
