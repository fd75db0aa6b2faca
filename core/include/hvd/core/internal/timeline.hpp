// Records what happens to every tensor, and when, in a Chrome trace that opens in Perfetto. There
// is one file per rank. docs/how-to/observability.md has the format.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <hvd/core/types.hpp>

namespace hvd {

/// Names the phases of an operation, in order. The phase of the collective is named after its kind,
/// as "allreduce", and the algorithm is in `TimelineArgs`.
namespace timeline_phase {
inline constexpr std::string_view kNegotiate = "NEGOTIATE";        ///< submitted, not yet scheduled
inline constexpr std::string_view kQueue = "QUEUE";                ///< waits for its turn
inline constexpr std::string_view kWaitForData = "WAIT_FOR_DATA";  ///< the device computes the data
inline constexpr std::string_view kMemcpyIn = "MEMCPY_IN";
inline constexpr std::string_view kMemcpyOut = "MEMCPY_OUT";
}  // namespace timeline_phase

struct TimelineArgs {
  std::optional<DType> dtype{};
  std::span<const std::int64_t> shape{};  ///< shown when there is a dtype; the first 16 dimensions
  std::uint64_t bytes = 0;                ///< shown when not 0
  std::uint64_t fused = 0;                ///< tensors in the same backend call; shown above 1
  std::string_view algorithm{};           ///< algorithm or backend, shown beside the phase
};

struct TimelineOptions {
  int rank = 0;
  std::string host{};
  /// How far this host's clock lags behind the reference; merging adds it to the times of the file.
  std::chrono::nanoseconds clock_offset{0};
  std::size_t buffer_bytes = std::size_t{4}
                             << 20;  ///< of each of two buffers; a full one drops events
  /// The file drops events when it has this size; at least 64 KiB.
  std::size_t max_file_bytes = std::size_t{256} << 20;
  std::chrono::milliseconds flush_interval{200};
  int max_lanes = 512;  ///< tensors with a lane of their own; more share lanes
};

/// Any thread may call any method at any time, except the destructor.
///
/// While it is off, recording costs one relaxed load. While it is on, recording copies a few
/// hundred bytes under a lock; a thread of its own writes the file, which is valid JSON after every
/// flush. A process that is killed loses what it recorded after the last flush, and within a flush
/// leaves an array without its end. Memory and file are bounded: events without room are dropped
/// and counted, and the trace says so.
class Timeline {
 public:
  explicit Timeline(TimelineOptions options);
  /// Stops the timeline.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// Replaces the file at `path`. Throws Errc::invalid_argument when a timeline is being written,
  /// Errc::resource naming the path when it cannot be.
  void start(const std::string& path);
  /// Writes what was recorded and closes the file. Does nothing when the timeline is off.
  void stop() noexcept;

  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_relaxed); }
  /// Returns the path of the file being written, which is empty when the timeline is off.
  [[nodiscard]] std::string path() const;
  /// Returns the number of events that were dropped since construction.
  [[nodiscard]] std::uint64_t dropped() const noexcept;

  /// Records one phase of one tensor. Names may hold any bytes; long ones are cut when shown.
  void complete(std::string_view tensor, std::string_view phase, Clock::time_point begin,
                Clock::time_point end, const TimelineArgs& args = {}) {
    if (on()) record_span(tensor, phase, begin, end, args);
  }
  /// Records a moment of the whole rank, as "step", "freeze" or "thaw".
  void mark(std::string_view name, Clock::time_point at) {
    if (on()) record_mark(name, at);
  }

 private:
  struct Impl;

  void record_span(std::string_view tensor, std::string_view phase, Clock::time_point begin,
                   Clock::time_point end, const TimelineArgs& args);
  void record_mark(std::string_view name, Clock::time_point at);

  std::atomic<bool> on_{false};
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
