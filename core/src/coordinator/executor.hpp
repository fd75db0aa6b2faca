// The executor thread: runs batches on the backends, in the order it is given them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <hvd/core/backend.hpp>

#include "coordinator/counters.hpp"
#include "coordinator/pending_tensor.hpp"

namespace hvd {

struct TensorBatch {
  std::vector<std::shared_ptr<PendingTensor>> tensors;      ///< alike but for shape; not empty
  std::vector<std::vector<std::int64_t>> first_dimensions;  ///< allgather: by tensor, by rank
};

class Executor {
 public:
  /// All on the executor thread.
  struct Callbacks {
    /// The tensor's result is in place, or `error` struck it alone. Completes its work.
    std::function<void(PendingTensor&, std::exception_ptr error)> tensor_done;
    std::function<void()> batch_done;
    /// A backend failed: nothing more runs, the batch's tensors are not done, `stop` is expected.
    std::function<void(const Error&)> failed;
    /// The last call, unless the queue ended by `drain`.
    std::function<void()> stopped;
  };

  Executor(std::vector<std::unique_ptr<Backend>> backends, Clock::duration timeout,
           Counters& counters, Callbacks callbacks);
  /// `stop()` and joins.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  [[nodiscard]] bool supports(const Request& request) const noexcept;
  void run(TensorBatch batch);
  /// Ends the thread once the queue is empty. Does not wait.
  void drain();
  /// Aborts what runs, drops the queue and ends the thread. Does not wait. Any thread.
  void stop() noexcept;
  /// Waits for the thread's end, after `drain` or `stop`. Not on the executor or loop thread.
  void join();

 private:
  enum class State { running, draining, stopped };

  void thread_main();
  bool next(TensorBatch& batch);
  void execute(const TensorBatch& batch);
  void allreduce(Backend& backend, const TensorBatch& batch, Deadline deadline);
  void allgather(Backend& backend, const TensorBatch& batch, Deadline deadline);
  void broadcast(Backend& backend, const TensorBatch& batch, Deadline deadline);
  void finish(PendingTensor& tensor) const;
  [[nodiscard]] Backend* backend_for(const Request& request) const noexcept;

  const std::vector<std::unique_ptr<Backend>> backends_;
  const Clock::duration timeout_;
  Counters& counters_;
  const Callbacks callbacks_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TensorBatch> queue_;
  State state_ = State::running;
  std::thread thread_;
};

}  // namespace hvd
