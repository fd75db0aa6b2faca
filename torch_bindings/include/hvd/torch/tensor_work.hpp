// Declares the completion handles of operations on tensors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <hvd/core/work.hpp>

namespace hvd {

/// The handle of one operation, which copies share. Any thread may use it. As with `Work`, every
/// wait is bounded and throws the operation's `Error`.
class TensorWork {
 public:
  TensorWork() noexcept = default;
  TensorWork(Work work, std::shared_ptr<torch::Tensor> result) noexcept
      : work_(std::move(work)), result_(std::move(result)) {}

  [[nodiscard]] bool valid() const noexcept { return work_.valid(); }
  /// Waits for the operation and returns the result: the given tensor for the in-place forms,
  /// otherwise a new one. The program must not read or write the tensor before. The current stream
  /// of the result's device may use it.
  torch::Tensor wait() const;
  /// Waits until the operation has ended, and returns true or throws its error. Returns false when
  /// `deadline` passes first.
  [[nodiscard]] bool wait_until(Deadline deadline) const { return work_.wait_until(deadline); }
  [[nodiscard]] bool done() const noexcept { return work_.done(); }
  /// Returns null while the operation runs, and after its success.
  [[nodiscard]] std::exception_ptr error() const noexcept { return work_.error(); }
  [[nodiscard]] const Work& work() const noexcept { return work_; }

 private:
  Work work_;
  std::shared_ptr<torch::Tensor> result_;
};

struct AlltoallResult {
  torch::Tensor output;                       ///< rank 0's rows for this rank, then rank 1's, …
  std::vector<std::int64_t> received_splits;  ///< rows from each rank of the process set
};

/// The handle of one alltoall. In all other respects it is the same as `TensorWork`.
class AlltoallWork {
 public:
  AlltoallWork() noexcept = default;
  AlltoallWork(TensorWork work, std::shared_ptr<std::vector<std::int64_t>> received) noexcept
      : work_(std::move(work)), received_(std::move(received)) {}

  [[nodiscard]] bool valid() const noexcept { return work_.valid(); }
  AlltoallResult wait() const {
    torch::Tensor output = work_.wait();
    return {std::move(output), *received_};
  }
  [[nodiscard]] bool wait_until(Deadline deadline) const { return work_.wait_until(deadline); }
  [[nodiscard]] bool done() const noexcept { return work_.done(); }
  [[nodiscard]] std::exception_ptr error() const noexcept { return work_.error(); }

 private:
  TensorWork work_;
  std::shared_ptr<std::vector<std::int64_t>> received_;
};

/// The handles of the operations of one group, in the order of its tensors.
template <class Each>
class GroupWork {
 public:
  using Result = decltype(std::declval<const Each&>().wait());

  GroupWork() = default;
  explicit GroupWork(std::vector<Each> works) noexcept : works_(std::move(works)) {}

  /// Returns the results when all operations have ended, or throws the first error among them.
  std::vector<Result> wait() const {
    std::exception_ptr first;
    std::vector<Result> results;
    results.reserve(works_.size());
    for (const Each& work : works_) {
      try {
        results.push_back(work.wait());
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
    return results;
  }
  /// Waits until all operations have ended, and returns true or throws an error. Returns false when
  /// `deadline` passes first.
  [[nodiscard]] bool wait_until(Deadline deadline) const {
    return std::all_of(works_.begin(), works_.end(),
                       [deadline](const Each& work) { return work.wait_until(deadline); });
  }
  [[nodiscard]] bool done() const noexcept {
    return std::all_of(works_.begin(), works_.end(), [](const Each& work) { return work.done(); });
  }
  [[nodiscard]] const std::vector<Each>& works() const noexcept { return works_; }

 private:
  std::vector<Each> works_;
};

using TensorGroupWork = GroupWork<TensorWork>;
using AlltoallGroupWork = GroupWork<AlltoallWork>;

}  // namespace hvd
