// Declares the engine's side of a `Work`, which completes it and lets threads wait for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

#include <hvd/core/types.hpp>

namespace hvd::detail {

class WorkState;

/// How far an operation has come. It is launched when its work is queued on a device, which has an
/// event for the end. An operation without such an event goes from pending to done.
enum class WorkProgress : std::uint8_t { pending, launched, done };

/// Lets a thread that waits do the engine's work meanwhile, because handing it to another thread
/// costs more than a small collective. Lives as long as any work that refers to it.
class WorkDriver {
 public:
  virtual ~WorkDriver() = default;
  /// Returns once `work` has come to `goal`.
  virtual void drive(const WorkState& work, WorkProgress goal) = 0;
  /// Records that a thread has waited for a work, from `begin` to `end`, without driving it.
  virtual void waited(Clock::time_point begin, Clock::time_point end) = 0;
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

  /// Records that the work is launched, the device's event for its end, and the turn of the frozen
  /// schedule or 0.
  void launch(std::shared_ptr<void> end, std::uint64_t turn) noexcept;
  /// Completes the work. Later calls are ignored.
  void complete(std::exception_ptr error) noexcept;
  [[nodiscard]] bool reached(WorkProgress goal) const noexcept {
    return progress_.load(std::memory_order_acquire) >= goal;
  }
  [[nodiscard]] bool done() const noexcept { return reached(WorkProgress::done); }
  void wait(WorkProgress goal) const;
  /// Returns null unless the work is launched and not done.
  [[nodiscard]] std::shared_ptr<void> end() const;
  [[nodiscard]] std::uint64_t turn() const noexcept {
    return reached(WorkProgress::launched) ? turn_ : 0;
  }
  [[nodiscard]] bool wait_until(Deadline deadline) const;
  /// Returns null while the operation runs and after success.
  [[nodiscard]] std::exception_ptr error() const noexcept { return done() ? error_ : nullptr; }
  /// Tells the driver that the user has seen the end.
  void observed() const noexcept;

 private:
  const std::shared_ptr<WorkDriver> driver_;
  std::atomic<WorkProgress> progress_{WorkProgress::pending};
  std::exception_ptr error_;   // written before `progress_`
  std::uint64_t turn_ = 0;     // likewise
  std::shared_ptr<void> end_;  // guarded by the mutex
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

}  // namespace hvd::detail
