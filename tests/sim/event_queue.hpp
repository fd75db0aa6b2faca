// Runs events in virtual time. Events of a stopped rank wait; events of a dead rank are dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd::sim {

using Nanos = std::int64_t;

inline constexpr Nanos kMicro = 1'000;
inline constexpr Nanos kMilli = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

/// Converts virtual time to the time that the product sees.
[[nodiscard]] inline Clock::time_point time_point_at(Nanos time) {
  return Clock::time_point(std::chrono::hours(1)) + std::chrono::nanoseconds(time);
}

class EventQueue {
 public:
  using Action = std::function<void()>;

  explicit EventQueue(int ranks);

  [[nodiscard]] Nanos now() const noexcept { return now_; }
  [[nodiscard]] std::uint64_t events() const noexcept { return events_; }
  /// Adds an event that belongs to no rank, such as a fault or a network event.
  void at(Nanos time, Action action) { push(time, -1, std::move(action)); }
  /// Adds an event on `rank`.
  void at(Nanos time, int rank, Action action) { push(time, rank, std::move(action)); }
  /// Runs the next event. Returns false when there is none.
  bool step();

  void stop(int rank, Nanos until) { stopped_until_[static_cast<std::size_t>(rank)] = until; }
  void kill(int rank) { dead_[static_cast<std::size_t>(rank)] = true; }
  [[nodiscard]] bool cancelled(int rank) const { return dead_[static_cast<std::size_t>(rank)]; }

 private:
  struct Event {
    Nanos time;
    std::uint64_t order;
    int rank;
    Action action;
  };
  static bool later(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }
  void push(Nanos time, int rank, Action action);

  std::vector<Event> heap_;
  Nanos now_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t events_ = 0;
  std::vector<Nanos> stopped_until_;
  std::vector<bool> dead_;
};

}  // namespace hvd::sim
