// Passes the output of the processes of hvd::spawn to the user's functions.
#pragma once

#include <array>
#include <functional>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <hvd/core/internal/wire.hpp>
#include <hvd/spawn.hpp>

#include "supervise/rank_output.hpp"

namespace hvd::launcher {

/// Calls the user's functions on a thread of its own, so that a slow function does not delay the
/// thread that watches the processes.
class SpawnOutput {
 public:
  /// `options` must outlive it. `ranks` is one more than the highest rank.
  SpawnOutput(const SpawnOptions& options, int ranks);
  /// Waits until the user's functions have taken all queued output. Then passes the unfinished
  /// lines to them, on this thread.
  ~SpawnOutput();
  SpawnOutput(const SpawnOutput&) = delete;
  SpawnOutput& operator=(const SpawnOutput&) = delete;

  /// Returns whether there is a function for this stream.
  [[nodiscard]] bool takes(Stream stream) const;
  /// Queues what a rank wrote. The caller limits the bytes that are queued at a time. `on_taken` is
  /// called on the other thread.
  void take(int rank, Stream stream, Bytes bytes, std::function<void()> on_taken);

 private:
  void call(Stream stream, std::string_view lines);

  const std::array<const SpawnOptions::TakeOutput*, 2> functions_;  ///< by stream
  std::array<LineMux, 2> lines_;
  bool failed_ = false;  ///< a function that has thrown is not called again
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace hvd::launcher
