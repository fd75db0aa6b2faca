// The completion handle of one operation on a tensor.
#pragma once

#include <exception>
#include <memory>

#include <torch/types.h>

#include <hvd/core/work.hpp>

namespace hvd {

/// Copies share one operation. Any thread. What `Work` promises holds here too: every wait is
/// bounded and throws the operation's `Error`.
class TensorWork {
 public:
  TensorWork() noexcept = default;
  TensorWork(Work work, std::shared_ptr<torch::Tensor> result) noexcept
      : work_(std::move(work)), result_(std::move(result)) {}

  [[nodiscard]] bool valid() const noexcept { return work_.valid(); }
  /// The result: the tensor itself for the in-place forms, else a new one. It must not be touched
  /// before.
  torch::Tensor wait() const {
    work_.wait();
    return *result_;
  }
  /// As `wait()`, but returns false when `deadline` comes first.
  [[nodiscard]] bool wait_until(Deadline deadline) const { return work_.wait_until(deadline); }
  [[nodiscard]] bool done() const noexcept { return work_.done(); }
  /// Null while running and after success.
  [[nodiscard]] std::exception_ptr error() const noexcept { return work_.error(); }

 private:
  Work work_;
  std::shared_ptr<torch::Tensor> result_;
};

}  // namespace hvd
