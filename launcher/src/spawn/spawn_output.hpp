// Hands what the processes of hvd::spawn write to the user's functions.
#pragma once

#include <array>
#include <functional>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <hvd/core/wire.hpp>
#include <hvd/spawn.hpp>

#include "supervise/rank_output.hpp"

namespace hvd::launcher {

/// Calls the user's functions on a thread of its own: one that takes its time holds up nobody who
/// watches the processes.
class SpawnOutput {
 public:
  /// `options` outlives it. `ranks`: one more than the highest rank.
  SpawnOutput(const SpawnOptions& options, int ranks);
  /// Hands over what is queued and the lines that nothing ended, and waits until it is taken.
  ~SpawnOutput();
  SpawnOutput(const SpawnOutput&) = delete;
  SpawnOutput& operator=(const SpawnOutput&) = delete;

  /// Whether there is a function for this stream.
  [[nodiscard]] bool takes(Stream stream) const;
  /// Queues what a rank wrote; callers bound it. `on_taken` is called on the other thread.
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
