// Runs batches one at a time, on the executor thread or on a thread that waits for a result.
//
// A small collective costs less than waking another thread, so a thread that waits for a result
// runs batches itself (`drive`). Whichever thread runs a batch holds `running_` until the backend's
// call returns. A backend may return while its device still works (AsyncCollective); such a batch
// is kept in `async_`, and a thread that has nothing to run polls the oldest one until it is
// complete.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include <hvd/core/internal/ready_fence.hpp>

#include "engine/collective_runner.hpp"
#include "engine/local_batch.hpp"
#include "engine/tensor_table.hpp"
#include "engine/work_state.hpp"

namespace hvd::detail {

class Executor final : public WorkDriver {
 public:
  /// The executor informs it of what happens, on the thread on which it happens. While one thread
  /// runs a batch another may poll, so two of them may call at a time. The executor's lock is held
  /// during `turn_taken`, `waited` and `nothing_runs`, so they must not call the executor.
  class Listener {
   public:
    /// A turn of the frozen schedule was taken from the table at the time `now`.
    virtual void turn_taken(const LocalBatch& batch, const SchedulePosition& position,
                            Clock::time_point now) = 0;
    /// The tensor's name is free and its result is in place, or `error` concerns it alone. The
    /// listener completes its work.
    virtual void tensor_done(PendingTensor& tensor, std::exception_ptr error) = 0;
    /// A batch that was given to `run` is complete.
    virtual void batch_done() = 0;
    /// A backend failed. Nothing more runs, the batch's tensors are not done, and the listener
    /// calls `stop`.
    virtual void backend_failed(const Error& error) = 0;
    /// A thread waited for a work from `begin` to `end`.
    virtual void waited(Clock::time_point begin, Clock::time_point end) = 0;
    /// A thread has waited for a while, and no batch runs.
    virtual void nothing_runs() = 0;
    /// The executor thread ends; no other call follows.
    virtual void stopped() = 0;

   protected:
    ~Listener() = default;
  };

  /// Turns of the frozen schedule come from `table`. `fence` may be null in a job of one rank.
  /// `table` and `listener` are used until `join` returns.
  Executor(std::unique_ptr<CollectiveRunner> runner, std::unique_ptr<ReadyFence> fence,
           Clock::duration timeout, TensorTable& table, Listener& listener);
  /// Calls `stop()` and `join()`.
  ~Executor() override;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Any thread may call it.
  [[nodiscard]] bool supports(const Request& request);
  /// Queues a batch that was negotiated. Any thread may call it.
  void run(LocalBatch batch);
  /// Wakes a thread to take the turn that the table has. Any thread may call it.
  void turn_came();
  /// Wakes the threads that may wait for a work that was completed elsewhere. Any thread may call
  /// it.
  void wake_waiting();
  /// Ends the turns that not every member has reached; see ReadyFence. Any thread may call it.
  void settle(std::span<const std::uint64_t> reached);
  /// Lets the executor end once its queue is empty. Does not wait. Any thread may call it.
  void drain();
  /// Aborts what runs, drops the queue and ends. Does not wait. Any thread may call it.
  void stop() noexcept;
  /// Waits for the end, after `drain` or `stop`, and then destroys the backends. Neither the loop
  /// thread nor a thread that runs a batch may call it.
  void join();

  // These implement WorkDriver, but for the second `drive`.
  void drive(const WorkState& work, WorkProgress goal) override { drive(work, goal, Clock::now()); }
  /// Does the same for a thread that has waited since `began`.
  void drive(const WorkState& work, WorkProgress goal, Clock::time_point began);
  void waited(Clock::time_point begin, Clock::time_point end) override;
  void observed() noexcept override { observed_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t observations() const noexcept {
    return observed_.load(std::memory_order_relaxed);
  }

 private:
  /// `over`: the executor thread has ended.
  enum class State { running, draining, stopped, over };
  using Lock = std::unique_lock<std::mutex>;
  struct AsyncBatch {
    LocalBatch batch;
    CollectiveRunner::Ran ran;
  };

  void thread_main();
  [[nodiscard]] bool can_run() const;
  [[nodiscard]] bool can_poll() const;
  [[nodiscard]] bool driver_can_run() const;
  [[nodiscard]] bool executor_can_poll() const;
  [[nodiscard]] bool busy() const;
  void wake_one();
  [[nodiscard]] bool take_next(Clock::time_point now);
  [[nodiscard]] Clock::time_point run_next(Lock& lock, Clock::time_point now);
  bool poll_first(Lock& lock);
  void complete_all(Lock& lock);
  [[nodiscard]] bool arrive(const LocalBatch& batch);
  [[nodiscard]] std::optional<CollectiveRunner::Ran> execute(const LocalBatch& batch);
  void launch(const LocalBatch& batch, const AsyncCollective& async);
  [[nodiscard]] bool try_complete(const AsyncBatch& async) const;
  void finish(const LocalBatch& batch) const;
  void wait_for(DeviceEvent& event) const;
  void complete(const LocalBatch& batch) const;
  void report_failure() const;

  std::unique_ptr<CollectiveRunner> runner_;
  std::unique_ptr<ReadyFence> ready_fence_;
  const Clock::duration timeout_;
  TensorTable& table_;
  Listener& listener_;
  std::atomic<std::uint64_t> observed_{0};
  std::atomic<std::uint64_t> supported_{0};  // a kind of request that a backend runs; 0: none yet

  mutable std::mutex mutex_;
  std::condition_variable idle_;     // the executor thread waits
  std::condition_variable waiting_;  // threads in `drive` wait
  std::deque<LocalBatch> queue_;
  State state_ = State::running;
  bool running_ = false;          // a thread runs `batch_`
  LocalBatch batch_;              // keeps its memory from batch to batch
  std::deque<AsyncBatch> async_;  // in the order in which they complete
  bool polling_ = false;          // a thread polls the first of `async_`
  bool failed_ = false;           // a backend failed
  int drivers_ = 0;               // threads in `drive`
  std::thread thread_;
};

}  // namespace hvd::detail
