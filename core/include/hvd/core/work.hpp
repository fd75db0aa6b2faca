// Declares the shared completion handle of one operation.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include <hvd/core/types.hpp>

namespace hvd {

namespace detail {
class WorkState;  // the engine's side
}

class Work {
 public:
  Work() noexcept = default;
  explicit Work(std::shared_ptr<detail::WorkState> state) noexcept : state_(std::move(state)) {}

  [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }
  /// Returns when the result is in place; throws the operation's `Error`. The wait is bounded,
  /// since the engine completes every operation, with an error when a rank is lost or a deadline
  /// passes. The thread may run collectives meanwhile, this one and others. Any thread may call it.
  void wait() const;
  /// Waits at most until the operation is launched: its work is queued on the device, and its name
  /// is free. Returns the device's own event (a cudaEvent_t) for a stream to wait for. Once it has
  /// occurred, the device no longer writes to the result, which is valid unless `error` then
  /// returns an error. Returns null when the result is in place, and throws as `wait` does. Any
  /// thread may call it.
  [[nodiscard]] std::shared_ptr<void> wait_launched() const;
  /// Returns in which turn of the frozen schedule a device runs the operation: operations that are
  /// fused have the same number. Returns 0 before the launch, and for all other operations.
  [[nodiscard]] std::uint64_t turn() const noexcept;
  /// Waits without running collectives. Returns false when `deadline` passes first.
  [[nodiscard]] bool wait_until(Deadline deadline) const;
  [[nodiscard]] bool done() const noexcept;
  /// Returns null while the operation runs and after success.
  [[nodiscard]] std::exception_ptr error() const noexcept;

 private:
  std::shared_ptr<detail::WorkState> state_;
};

}  // namespace hvd
