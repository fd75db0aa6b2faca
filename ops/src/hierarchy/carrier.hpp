// The thread that carries slices from host to host while the next ones are being reduced.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace hvd {

/// Runs jobs in order on a thread of its own, which sleeps in between and is begun with the first
/// job. Jobs are bounded by their own deadlines, and so is every wait here. All calls come from one
/// thread.
class Carrier {
 public:
  /// `on_failure` is called on the carrier's thread when a job throws, unless after `cancel`: it
  /// wakes the caller out of what else it may be waiting in.
  explicit Carrier(std::function<void()> on_failure) : on_failure_(std::move(on_failure)) {}
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  /// `wait_for` counts from here. No job is left.
  void begin();
  void post(std::function<void()> job);
  /// Returns when so many jobs are through; throws what one of them threw.
  void wait_for(std::size_t jobs);

  /// Jobs that have not begun never will, and what the running one throws from now on is forgotten.
  /// Returns what one threw before, or null.
  [[nodiscard]] std::exception_ptr cancel() noexcept;
  /// After `cancel`: returns when nothing runs.
  void drain() noexcept;

 private:
  void run();

  const std::function<void()> on_failure_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable finished_;
  std::deque<std::function<void()>> jobs_;
  std::size_t through_ = 0;
  bool busy_ = false;
  bool cancelled_ = false;
  bool ending_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace hvd
