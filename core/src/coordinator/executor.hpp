// Runs jobs, one at a time, on whoever holds the baton: the executor thread, or a thread that waits
// for a result. What a device goes on with is a flight; whoever has nothing to run sees to its
// landing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include <hvd/core/arrivals.hpp>
#include <hvd/core/work.hpp>

#include "coordinator/collective_runner.hpp"
#include "coordinator/job.hpp"

namespace hvd {

class Executor final : public WorkDriver {
 public:
  /// On the thread that holds the baton, unless said otherwise.
  struct Callbacks {
    /// Whether a job of the frozen schedule may begin. Any thread, often: takes no lock.
    std::function<bool()> turn_ready;
    /// Puts the next job of the frozen schedule into the place of the last one, whose memory it may
    /// use; false when there is none. It is `now`.
    std::function<bool(Job& job, Clock::time_point now)> take_turn;
    /// All its ranks have come to the job of the frozen schedule: from now on it has a deadline.
    std::function<void()> turn_committed;
    /// A job of the frozen schedule was taken back.
    std::function<void()> turn_withdrawn;
    /// A job has run; its tensors are done next.
    std::function<void(const Job&)> ran;
    /// A job is in the air: the next may begin.
    std::function<void(const Job&)> took_off;
    /// As `ran`, of one that was. Any one thread, also while another one holds the baton; likewise
    /// what follows.
    std::function<void(const Job&)> landed;
    /// The tensor's result is in place, or `error` struck it alone. Completes its work.
    std::function<void(PendingTensor&, std::exception_ptr error)> tensor_done;
    /// A job that was given to `run` is over.
    std::function<void()> job_done;
    /// A backend failed: nothing more runs, the job's tensors are not done, `stop` is expected.
    std::function<void(const Error&)> failed;
    /// A thread has waited for a work, and its wait is over. That thread.
    std::function<void(Clock::time_point begin, Clock::time_point end)> waited;
    /// A thread has waited for a while and nothing runs. That thread.
    std::function<void()> nothing_runs;
    /// The last call; nothing runs any more. Executor thread.
    std::function<void()> stopped;
  };

  /// `arrivals` may be null: then `take_turn` gives nothing that others have to come to.
  Executor(std::unique_ptr<CollectiveRunner> runner, std::unique_ptr<Arrivals> arrivals,
           Clock::duration timeout, Callbacks callbacks);
  /// `stop()` and `join()` come first.
  ~Executor() override;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Any thread.
  [[nodiscard]] bool supports(const Request& request);
  void run(Job job);
  /// There is a turn. Somebody takes it; when `waits`, the caller is about to.
  void turn_came();
  /// A work was completed elsewhere.
  void wake_waiting();
  /// No turn beyond what every member of it has reached comes any more; see Arrivals.
  void settle(std::span<const std::uint64_t> reached) noexcept;
  /// Ends once the queue is empty. Does not wait.
  void drain();
  /// Aborts what runs, drops the queue and ends. Does not wait. Any thread.
  void stop() noexcept;
  /// Waits for the end, after `drain` or `stop`; then drops the backends. Neither on the loop
  /// thread nor with the baton.
  void join();

  // WorkDriver
  void drive(const WorkState& work) override;
  void observed() noexcept override { observed_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t observations() const noexcept {
    return observed_.load(std::memory_order_relaxed);
  }

 private:
  enum class State { running, draining, stopped };
  using Lock = std::unique_lock<std::mutex>;
  struct InTheAir {
    Job job;
    CollectiveRunner::Ran ran;
  };

  void thread_main();
  [[nodiscard]] bool can_run() const;
  [[nodiscard]] bool can_land() const;
  [[nodiscard]] bool may_run() const;
  [[nodiscard]] bool may_land() const;
  [[nodiscard]] bool busy() const;
  void wake_one();
  [[nodiscard]] bool take_next(Clock::time_point now);
  [[nodiscard]] Clock::time_point run_next(Lock& lock, Clock::time_point now);
  bool land_next(Lock& lock);
  void look(Lock& lock, Clock::time_point& yield_until);
  void land_all(Lock& lock);
  [[nodiscard]] std::optional<CollectiveRunner::Ran> execute(const Job& job);
  [[nodiscard]] bool landed(const InTheAir& flown) const;
  void finish(const Job& job) const;
  void finish(PendingTensor& tensor) const;
  void fail() const;

  std::unique_ptr<CollectiveRunner> runner_;
  std::unique_ptr<Arrivals> arrivals_;
  const Clock::duration timeout_;
  Callbacks callbacks_;
  std::atomic<std::uint64_t> observed_{0};
  std::atomic<std::uint64_t> supported_{0};  // one kind of operation that is; 0: none yet

  mutable std::mutex mutex_;
  std::condition_variable idle_;     // the executor thread waits
  std::condition_variable waiting_;  // threads in `drive` wait
  std::deque<Job> queue_;
  State state_ = State::running;
  bool baton_taken_ = false;
  Job job_;                       // of the holder of the baton; keeps its memory
  std::deque<InTheAir> flights_;  // in the order in which they land
  bool landing_ = false;          // somebody looks at the first of them
  bool failed_ = false;
  bool over_ = false;  // the executor thread has left
  int drivers_ = 0;
  std::thread thread_;
};

}  // namespace hvd
