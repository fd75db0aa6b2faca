// Formats the events of the Chrome trace format ("Trace Event Format", array form) of which a
// timeline consists, each as one JSON object of a few kilobytes at most.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

#include "observe/trace_buffer.hpp"

namespace hvd::observe {

/// Describes the first element of a file, which tells the rank and how its clock relates to others.
/// Viewers ignore it. A time of the trace plus both durations is the time since 1970 on the
/// reference clock.
struct TraceOrigin {
  int rank = 0;
  std::string_view host;
  std::chrono::nanoseconds steady_to_unix{0};
  std::chrono::nanoseconds clock_offset{0};
};

[[nodiscard]] std::string format_origin(const TraceOrigin& origin);
/// Names the rank's group of lanes.
[[nodiscard]] std::string format_process_name(int rank, std::string_view host);
[[nodiscard]] std::string format_process_order(int rank);
/// Names a lane.
[[nodiscard]] std::string format_lane_name(int rank, int lane, std::string_view name);
/// Formats an event of a lane. Lane 0 has the marks.
[[nodiscard]] std::string format_event(const TraceEvent& event, int rank, int lane);
[[nodiscard]] std::string format_dropped(int rank, Clock::time_point at, std::uint64_t events);

/// Assigns tensors to lanes, which are numbered from 1. Each tensor gets a lane of its own while
/// there are enough. When all are taken, a new name takes over the lane that was not used for
/// longest, so that the number of lanes is bounded where names change every step.
class TraceLanes {
 public:
  struct Lane {
    int number = 0;
    bool fresh = false;   ///< assigned for the first time
    bool shared = false;  ///< taken over for the first time
  };

  explicit TraceLanes(int most) : most_(most < 1 ? 1 : static_cast<std::size_t>(most)) {}

  [[nodiscard]] Lane lane_of(std::string_view tensor);

 private:
  struct Owner {
    std::string name;
    int number = 0;
    bool shared = false;
  };

  std::size_t most_;
  std::list<Owner> owners_;  // the latest first
  std::unordered_map<std::string_view, std::list<Owner>::iterator> by_name_;
};

}  // namespace hvd::observe
