// Holds the counters of one context since it began and the times of its steps, and writes both as
// text.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace hvd {

/// Describes one step, the interval between two marks of the optimizer. Work that crosses a mark
/// belongs to the step in which it ended.
struct StepSample {
  std::chrono::nanoseconds duration{0};
  std::chrono::nanoseconds compute{0};        ///< duration less exposed communication
  std::chrono::nanoseconds communication{0};  ///< time in which a backend ran
  /// Time in which at least one user thread was blocked on communication; several threads count
  /// once.
  std::chrono::nanoseconds exposed{0};
  /// From submission to schedule, summed over the operations that were negotiated: with operations
  /// in parallel it may exceed the duration.
  std::chrono::nanoseconds negotiation{0};
  std::chrono::nanoseconds ready_wait{0};  ///< time in which the executor waited for data
  std::chrono::nanoseconds pack{0};        ///< copies into and out of fusion memory, where known
  std::uint64_t operations = 0;            ///< completed
  std::uint64_t negotiated = 0;            ///< operations scheduled by negotiation
  std::uint64_t schedule_hits = 0;         ///< operations run from the frozen schedule
  std::uint64_t collectives = 0;           ///< backend calls
  std::uint64_t bytes = 0;
  std::uint64_t fused_bytes = 0;
  std::uint64_t messages = 0;  ///< control messages sent and received
};

/// Summarises the last `window` steps, at most 100. `mean`, `p50` and `p99` are taken field by
/// field (a percentile is the nearest rank, a mean count is rounded down).
struct StepStats {
  std::uint64_t count = 0;  ///< steps since the context began
  std::uint64_t window = 0;
  StepSample last{};
  StepSample mean{};
  StepSample p50{};
  StepSample p99{};
};

struct Stats {
  std::uint64_t submitted = 0;              ///< operations this rank submitted
  std::uint64_t completed = 0;              ///< operations completed without error
  std::uint64_t failed = 0;                 ///< operations completed with an error
  std::uint64_t collectives_started = 0;    ///< backend calls begun
  std::uint64_t collectives = 0;            ///< backend calls finished
  std::uint64_t fused_tensors = 0;          ///< tensors that shared a backend call with another
  std::uint64_t bytes = 0;                  ///< input bytes of the finished calls
  std::uint64_t control_messages_sent = 0;  ///< negotiation only, heartbeats not counted
  std::uint64_t control_messages_received = 0;

  std::uint64_t fused_bytes = 0;       ///< of `bytes`, those of calls with several tensors
  std::uint64_t schedule_hits = 0;     ///< operations run from the frozen schedule
  std::uint64_t freezes = 0;           ///< times a schedule was frozen
  std::uint64_t thaws = 0;             ///< times a frozen schedule was given up
  std::uint64_t stall_warnings = 0;    ///< operations that were reported as stalled
  std::uint64_t timeline_dropped = 0;  ///< events that the timeline had no room for

  // These fields of StepSample are counted since the context began, also outside of steps.
  std::uint64_t negotiated = 0;
  std::chrono::nanoseconds communication{0};
  std::chrono::nanoseconds exposed{0};
  std::chrono::nanoseconds negotiation{0};
  std::chrono::nanoseconds ready_wait{0};
  std::chrono::nanoseconds pack{0};

  StepStats step{};

  /// The rank for which all others wait in each step, and for how long; -1 when none stands out.
  /// All ranks find the same, from their last 20 steps.
  std::int64_t slowest_rank = -1;
  std::chrono::nanoseconds slowest_cost{0};
};

/// Holds the labels of one rank's metrics. They may have any bytes, which are escaped where needed.
struct MetricLabels {
  int rank = 0;
  std::string job{};
  std::string host{};
};

/// Returns one line of JSON, an object with the names of the fields above. Durations are in
/// seconds, as `communication_seconds`.
[[nodiscard]] std::string to_json(const Stats& stats);
/// Returns the Prometheus text format, version 0.0.4; docs/how-to/observability.md lists the
/// metrics.
[[nodiscard]] std::string to_prometheus(const Stats& stats, const MetricLabels& labels);

}  // namespace hvd
