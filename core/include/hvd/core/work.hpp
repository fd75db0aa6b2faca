// The shared completion handle of one operation.
#pragma once

#include <exception>
#include <memory>

#include <hvd/core/types.hpp>

namespace hvd {

/// The side that completes a `Work`. Owned by the engine; users hold `Work`.
class WorkState;

class Work {
 public:
  Work() noexcept = default;
  explicit Work(std::shared_ptr<WorkState> state) noexcept : state_(std::move(state)) {}

  [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }
  /// Returns when the result is in place; throws the operation's `Error`. The wait is bounded,
  /// since the engine completes every operation, with an error when a rank is lost or a deadline
  /// passes. The thread may run collectives meanwhile, this one and others. Any thread.
  void wait() const;
  /// Waits without running collectives. Returns false when `deadline` comes first.
  [[nodiscard]] bool wait_until(Deadline deadline) const;
  [[nodiscard]] bool done() const noexcept;
  /// Null while running and after success.
  [[nodiscard]] std::exception_ptr error() const noexcept;

 private:
  std::shared_ptr<WorkState> state_;
};

/// Lets a thread that waits do the engine's work meanwhile, because handing it to another thread
/// costs more than a small collective. Lives as long as any work that refers to it.
class WorkDriver {
 public:
  virtual ~WorkDriver() = default;
  /// Returns once `work` is done.
  virtual void drive(const WorkState& work) = 0;
  /// The user has seen a result, so that later submissions may depend on it.
  virtual void observed() noexcept = 0;
};

class WorkState {
 public:
  explicit WorkState(std::shared_ptr<WorkDriver> driver = nullptr);
  ~WorkState();
  WorkState(const WorkState&) = delete;
  WorkState& operator=(const WorkState&) = delete;

  /// Completes the work. Later calls are ignored. Any thread.
  void complete(std::exception_ptr error) noexcept;
  [[nodiscard]] bool done() const noexcept;
  void wait() const;
  [[nodiscard]] bool wait_until(Deadline deadline) const;
  [[nodiscard]] std::exception_ptr error() const noexcept;
  /// Tells the driver that the user has seen the end.
  void observed() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
