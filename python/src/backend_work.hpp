// Shows operations of the engine as the Work of torch.distributed.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <hvd/core/work.hpp>

namespace hvd::python {

/// Waits for the operations of a group, and completes futures. Waiting for the works is the only
/// way to learn of their end, so a thread does it, which starts with the first future. Callbacks of
/// the futures run on that thread. They may wait for futures of their own, as those of torch's
/// hooks do, so another completer completes the futures that a callback asks for. The thread owns
/// the completer too, because a callback may release the last handle of a group.
class FutureCompleter : public std::enable_shared_from_this<FutureCompleter> {
 public:
  /// If `stream_ordered`, a thread that waits for an operation on a device waits only until the
  /// operation is launched, and the thread's current stream waits for its end.
  explicit FutureCompleter(bool stream_ordered) : stream_ordered_(stream_ordered) {}
  FutureCompleter(const FutureCompleter&) = delete;
  FutureCompleter& operator=(const FutureCompleter&) = delete;
  /// Waits for all works and callbacks, unless a callback calls it. The works have ended or are
  /// about to end. The caller does not hold Python's lock, which callbacks need.
  void stop();

  /// `tensor` is an input or a result of the operations, which all are on its device. It may be
  /// undefined for operations without tensors. Throws DistBackendError.
  void wait(const std::vector<Work>& works, const at::Tensor& tensor) const;
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> future_of(
      const std::vector<Work>& works, const std::vector<at::Tensor>& results,
      const at::Tensor& tensor);

 private:
  struct Entry {
    std::vector<Work> works;
    std::vector<at::Tensor> results;
    at::Tensor tensor;
    c10::intrusive_ptr<c10::ivalue::Future> future;
  };
  void run();
  void complete(const Entry& entry) const;

  bool stream_ordered_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  bool ended_ = false;
  std::thread thread_;
  std::shared_ptr<FutureCompleter> of_callbacks_;
};

/// Returns the name of an operation in profiles, as "hvd:all_reduce".
[[nodiscard]] const char* profiling_title(c10d::OpType type);

/// The handle of one call of torch.distributed, which is one or more operations of the engine.
/// Without operations it is complete. In profiles the call lasts from the constructor to its end.
class BackendWork final : public c10d::Work {
 public:
  BackendWork(int rank, c10d::OpType type, std::chrono::milliseconds timeout,
              std::vector<at::Tensor> results, const std::vector<at::Tensor>& inputs,
              std::shared_ptr<FutureCompleter> completer);
  /// Adds an operation, before anybody else has this handle.
  void add(hvd::Work work) { works_.push_back(std::move(work)); }

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return results_; }
  void synchronize() override { wait(kNoTimeout); }
  /// Throws DistBackendError for an error of an operation, and when `timeout` passes. Without a
  /// timeout it waits as long as the engine does, which ends an operation that stalls for longer
  /// than the group's timeout. On a device the current stream then waits in place of this thread.
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void end_profile();

  std::chrono::milliseconds timeout_;
  std::vector<hvd::Work> works_;
  std::vector<at::Tensor> results_;
  at::Tensor tensor_;  // as in `FutureCompleter::wait`
  std::shared_ptr<FutureCompleter> completer_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace hvd::python
