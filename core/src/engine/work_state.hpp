// Declares the engine's side of a `Work`, which completes it and lets threads wait for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>

#include <hvd/core/types.hpp>

namespace hvd::detail {

class WorkState;

/// Lets a thread that waits do the engine's work meanwhile, because handing it to another thread
/// costs more than a small collective. Lives as long as any work that refers to it.
class WorkDriver {
 public:
  virtual ~WorkDriver() = default;
  /// Returns once `work` is done.
  virtual void drive(const WorkState& work) = 0;
  /// Records that the user has seen a result, so that later submissions may depend on it.
  virtual void observed() noexcept = 0;
};

/// Any thread may call it.
class WorkState {
 public:
  /// Without a driver a thread that waits for the work sleeps.
  explicit WorkState(std::shared_ptr<WorkDriver> driver) noexcept : driver_(std::move(driver)) {}
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;

  /// Completes the work. Later calls are ignored.
  void complete(std::exception_ptr error) noexcept;
  [[nodiscard]] bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  void wait() const;
  [[nodiscard]] bool wait_until(Deadline deadline) const;
  /// Returns null while the operation runs and after success.
  [[nodiscard]] std::exception_ptr error() const noexcept { return done() ? error_ : nullptr; }
  /// Tells the driver that the user has seen the end.
  void observed() const noexcept;

 private:
  const std::shared_ptr<WorkDriver> driver_;
  std::atomic<bool> done_{false};
  std::exception_ptr error_;  // written before `done_`
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

}  // namespace hvd::detail
