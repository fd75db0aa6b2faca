// The events of the Chrome trace format ("Trace Event Format", array form) that a timeline consists
// of, each as one JSON object of at most a page.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "observe/trace_buffer.hpp"

namespace hvd::observe {

/// Says whose file it is and how its clock relates to others; the first element of a file. Viewers
/// ignore it. A time of the trace plus both durations is the time since 1970 on the reference
/// clock.
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
/// Lane 0 is for marks.
[[nodiscard]] std::string format_event(const TraceEvent& event, int rank, int lane);
[[nodiscard]] std::string format_dropped(int rank, Clock::time_point at, std::uint64_t events);

}  // namespace hvd::observe
