// Owns the thread that reduces slices across hosts while others are reduced within the host.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace hvd::detail {

/// Runs jobs in order on a thread of its own, which starts with the first job and sleeps between
/// jobs. Every wait here ends because the jobs have deadlines. All calls come from one thread.
class CommThread {
 public:
  /// `on_failure` is called on the new thread when a job throws before `cancel`. It has to abort
  /// whatever else the calling thread may be blocked in.
  explicit CommThread(std::function<void()> on_failure) : on_failure_(std::move(on_failure)) {}
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  /// Restarts the count of `wait_for`. The caller calls it when no job is left.
  void begin();
  void post(std::function<void()> job);
  /// Returns when `jobs` jobs have ended since `begin`. Throws what one of them threw.
  void wait_for(std::size_t jobs);

  /// Drops the jobs that have not begun, and ignores what the running one throws from now on.
  /// Returns what a job threw before, or null.
  [[nodiscard]] std::exception_ptr cancel() noexcept;
  /// Returns when no job runs. The caller calls it after `cancel`.
  void drain() noexcept;

 private:
  void run();

  const std::function<void()> on_failure_;
  std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable finished_;
  std::deque<std::function<void()>> jobs_;
  std::size_t ended_ = 0;
  bool busy_ = false;
  bool cancelled_ = false;
  bool ending_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace hvd::detail
