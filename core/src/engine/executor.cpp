#include "engine/executor.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <sched.h>

#include <hvd/core/internal/start_thread.hpp>

namespace hvd::detail {
namespace {

// A waiting thread yields the core for this long before it sleeps, because sleeping and waking cost
// some tens of microseconds.
constexpr std::chrono::microseconds kYield{100};

// A thread that sleeps wakes at growing intervals, to see whether the frozen schedule keeps its
// work from running.
constexpr std::chrono::milliseconds kFirstWakeUp{1};
constexpr std::chrono::milliseconds kLastWakeUp{100};

// The executor thread sleeps this long between two polls of an asynchronous collective for which no
// thread waits. A poll makes about six calls of the device's driver, which may delay a thread of
// the program that launches kernels.
constexpr std::chrono::milliseconds kPollInterval{1};

// A thread that waits for a device looks at these intervals whether the executor was stopped.
constexpr std::chrono::milliseconds kStopInterval{20};

// At most this many asynchronous collectives are pending at a time. A thread that waits only until
// its collectives are launched must not wait for the device, so they are those of several steps.
// Each takes up to three places of the device's queue, where a launch waits when 1,024 are taken.
constexpr std::size_t kMaxAsync = 64;

/// Packs everything on which a backend's support of a request depends into one number, never 0.
std::uint64_t kind_of(const Request& request) {
  const auto byte = [](auto value) { return static_cast<std::uint64_t>(value) & 0xFF; };
  return std::uint64_t{static_cast<std::uint32_t>(request.device.index)} << 32 |
         (byte(request.device.kind) + 1) << 24 | byte(request.kind) << 16 |
         byte(request.dtype) << 8 | byte(request.op);
}

/// Ends the announcement of a turn also when the backend throws.
class Announcing {
 public:
  explicit Announcing(TensorTable& table) : table_(table) {}
  ~Announcing() { table_.end_announcing(); }
  Announcing(const Announcing&) = delete;
  Announcing& operator=(const Announcing&) = delete;

 private:
  TensorTable& table_;
};

}  // namespace

Executor::Executor(std::unique_ptr<CollectiveRunner> runner, std::unique_ptr<ReadyFence> fence,
                   Clock::duration timeout, TensorTable& table, Listener& listener)
    : runner_(std::move(runner)),
      ready_fence_(std::move(fence)),
      timeout_(timeout),
      table_(table),
      listener_(listener),
      thread_(start_thread("hvd-executor", [this] { thread_main(); })) {}

Executor::~Executor() {
  stop();
  join();
}

bool Executor::supports(const Request& request) {
  // A request is nearly always of the same kind as the previous one, and then this takes no lock.
  // The lock keeps `join` from destroying the runner meanwhile.
  const std::uint64_t kind = kind_of(request);
  if (supported_.load(std::memory_order_relaxed) == kind) return true;
  const std::lock_guard lock(mutex_);
  if (state_ == State::over || !runner_->supports(request)) return false;
  supported_.store(kind, std::memory_order_relaxed);
  return true;
}

void Executor::run(LocalBatch batch) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(batch));
  wake_one();
}

void Executor::turn_came() {
  const std::lock_guard lock(mutex_);
  wake_one();
}

/// Wakes the thread that shall run the next batch: one that waits for a result, if there is one.
void Executor::wake_one() {
  const bool a_driver_can = drivers_ > 0 && async_.empty();
  (a_driver_can ? waiting_ : idle_).notify_one();
}

void Executor::wake_waiting() {
  const std::lock_guard lock(mutex_);
  if (drivers_ > 0) waiting_.notify_all();
}

void Executor::settle(std::span<const std::uint64_t> reached) {
  const std::lock_guard lock(mutex_);
  if (ready_fence_) ready_fence_->settle(reached);
}

void Executor::drain() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::running) state_ = State::draining;
  idle_.notify_one();
}

void Executor::stop() noexcept {
  const std::lock_guard lock(mutex_);
  if (state_ == State::over) return;
  state_ = State::stopped;
  idle_.notify_one();
  runner_->abort();
  if (ready_fence_) ready_fence_->abort();
}

void Executor::join() {
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  runner_.reset();
  ready_fence_.reset();
}

bool Executor::can_run() const {
  return state_ < State::stopped && !failed_ && !running_ && async_.size() < kMaxAsync &&
         (!queue_.empty() || table_.turn_ready());
}

bool Executor::can_poll() const { return !async_.empty() && !polling_; }

/// A thread in `drive` runs a batch only when no asynchronous one is pending: its own work may be
/// among those, and the next batch may have to wait for other ranks.
bool Executor::driver_can_run() const { return async_.empty() && can_run(); }

/// The executor thread leaves polling to threads in `drive`.
bool Executor::executor_can_poll() const { return drivers_ == 0 && can_poll(); }

bool Executor::busy() const { return running_ || polling_ || !async_.empty(); }

/// Puts the next batch into `batch_`; returns false when there is none.
bool Executor::take_next(Clock::time_point now) {
  if (queue_.empty()) {
    const std::optional<SchedulePosition> position = table_.take_turn(batch_, now);
    if (position) listener_.turn_taken(batch_, *position, now);
    return position.has_value();
  }
  batch_ = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

/// Runs one batch. The clock shows `now` before it and the returned time after it, so that it is
/// read once per batch.
Clock::time_point Executor::run_next(Lock& lock, Clock::time_point now) {
  if (!take_next(now)) return now;
  running_ = true;
  if (!async_.empty() && runner_->must_complete_before(batch_, async_.back().ran.backend)) {
    complete_all(lock);
  }
  const bool runs = !failed_;
  lock.unlock();
  std::optional<CollectiveRunner::Ran> ran;
  if (runs) ran = execute(batch_);
  const bool is_async = ran && ran->async;
  AsyncBatch async;
  if (is_async) {
    async = {std::exchange(batch_, {}), std::move(*ran)};
    now = Clock::now();
  } else {
    batch_.tensors.clear();  // the memory that they keep alive is released without the lock
    if (ran && batch_.sequence == 0) listener_.batch_done();
    if (ran) now = ran->time;
  }
  lock.lock();
  running_ = false;
  if (!ran) failed_ = true;
  if (is_async) async_.push_back(std::move(async));
  if (drivers_ > 0) waiting_.notify_all();
  if (state_ != State::running || drivers_ == 0 || !async_.empty()) idle_.notify_one();
  return now;
}

/// Announces a turn of the frozen schedule and waits until all its members have reached it. Returns
/// false when a thaw has withdrawn the turn; then its tensors no longer belong to this thread.
bool Executor::arrive(const LocalBatch& batch) {
  if (ready_fence_) {
    if (!table_.begin_announcing()) return false;
    {
      const Announcing announcing(table_);
      runner_->announce(batch);
    }
    if (!ready_fence_->arrive_and_wait(batch.sequence, batch.digest, batch.members)) {
      runner_->retract();
      return false;
    }
  }
  table_.commit_turn();
  return true;
}

/// Runs a batch. Returns nothing when a backend failed.
std::optional<CollectiveRunner::Ran> Executor::execute(const LocalBatch& batch) {
  const bool is_turn = batch.sequence != 0;
  try {
    if (is_turn && !arrive(batch)) {
      table_.end_turn();
      return CollectiveRunner::Ran{nullptr, Clock::now(), {}};
    }
    const Clock::time_point began = Clock::now();
    CollectiveRunner::Ran ran = runner_->run(batch, began, began + timeout_);
    if (ran.async) {
      launch(batch, *ran.async);
      if (is_turn) table_.end_turn();  // the next turn may begin
      return ran;
    }
    finish(batch);
    // The names become free before the works are done, so that a thread that sees a work done can
    // submit under its name again.
    if (is_turn) {
      table_.end_turn(batch.tensors);
    } else {
      table_.remove(batch.tensors);
    }
    // Completing a single work without a `finish` takes so little time that the clock is not read
    // again.
    const bool at_once = batch.tensors.size() == 1 && !batch.tensors.front()->submission.finish;
    complete(batch);
    if (!at_once) ran.time = Clock::now();
    return ran;
  } catch (...) {
    // This may block, and so it happens on this thread. It comes before any work fails: from then
    // on the owners may use their tensors again, and a rank that is late must not write to them.
    runner_->abandon();
    report_failure();
  }
  return std::nullopt;
}

/// Frees the names, before the works are launched, of tensors that a stream can wait for. The
/// others, whose results the host still has to finish, keep theirs until they are done.
void Executor::launch(const LocalBatch& batch, const AsyncCollective& async) {
  const std::shared_ptr<void> end = async.end();
  if (!end) return;
  const auto is_ready_at_end = [](const auto& tensor) { return !tensor->submission.finish; };
  for (const auto& tensor : batch.tensors) {
    if (is_ready_at_end(tensor)) table_.launch(tensor);
  }
  for (const auto& tensor : batch.tensors) {
    if (is_ready_at_end(tensor)) tensor->work.launch(end, batch.sequence);
  }
}

/// Tells the listener of the exception that is being handled.
void Executor::report_failure() const {
  try {
    throw;
  } catch (const Error& error) {
    listener_.backend_failed(error);
  } catch (const std::bad_alloc&) {
    listener_.backend_failed(Error(Errc::resource, "out of memory"));
  } catch (const std::exception& error) {
    listener_.backend_failed(Error(Errc::internal, error.what()));
  }
}

/// Polls the oldest asynchronous collective once; returns true when it is complete or has failed.
bool Executor::poll_first(Lock& lock) {
  polling_ = true;
  AsyncBatch& first = async_.front();  // it stays where it is: others are only added behind it
  lock.unlock();
  bool complete = true;
  bool failed = false;
  try {
    complete = try_complete(first);
  } catch (...) {
    failed = true;
    report_failure();
  }
  if (complete) first.batch.tensors.clear();
  if (!complete) ::sched_yield();
  lock.lock();
  polling_ = false;
  failed_ = failed_ || failed;
  if (complete) {
    async_.pop_front();
    waiting_.notify_all();
  }
  // There may be room for the next one, which threads in `drive` leave to the executor thread.
  if (state_ != State::running || drivers_ == 0 || can_run()) idle_.notify_one();
  return complete;
}

bool Executor::try_complete(const AsyncBatch& async) const {
  if (!async.ran.async->try_complete()) return false;
  runner_->completed(async.batch, async.ran);
  finish(async.batch);
  table_.remove(async.batch.tensors);
  complete(async.batch);
  if (async.batch.sequence == 0) listener_.batch_done();
  return true;
}

void Executor::complete_all(Lock& lock) {
  while (!async_.empty()) {
    if (can_poll()) {
      poll_first(lock);
      continue;
    }
    lock.unlock();  // another thread polls
    ::sched_yield();
    lock.lock();
  }
}

/// Finishes the results. An error of the program's function concerns its tensor alone. Throws when
/// the device does not finish a result in time.
void Executor::finish(const LocalBatch& batch) const {
  for (const auto& tensor : batch.tensors) {
    if (tensor->error || !tensor->submission.finish) continue;
    try {
      tensor->submission.finish();
    } catch (...) {
      tensor->error = std::current_exception();
      continue;
    }
    if (DeviceEvent* const ready = tensor->submission.ready.get()) wait_for(*ready);
  }
}

/// Waits until the collectives' timeout has passed or the executor is stopped, since the stream of
/// the program may never go on.
void Executor::wait_for(DeviceEvent& event) const {
  const Deadline deadline = Clock::now() + timeout_;
  for (;;) {
    const Deadline next = std::min<Deadline>(Clock::now() + kStopInterval, deadline);
    try {
      return event.wait(next);
    } catch (const Error& error) {
      if (error.code() != Errc::timeout || next == deadline) throw;
    }
    const std::lock_guard lock(mutex_);
    if (state_ == State::stopped) {
      throw Error(Errc::aborted, "aborted while the device finished a result");
    }
  }
}

void Executor::complete(const LocalBatch& batch) const {
  for (const auto& tensor : batch.tensors) listener_.tensor_done(*tensor, tensor->error);
}

void Executor::thread_main() {
  Lock lock(mutex_);
  for (;;) {
    idle_.wait(lock,
               [this] { return state_ != State::running || can_run() || executor_can_poll(); });
    if (state_ == State::stopped) break;
    if (can_run()) {
      static_cast<void>(run_next(lock, Clock::now()));
    } else if (executor_can_poll()) {
      const auto woken = [this] { return state_ == State::stopped || can_run(); };
      if (!poll_first(lock)) idle_.wait_for(lock, kPollInterval, woken);
    } else if (busy()) {
      idle_.wait(lock, [this] {
        return state_ == State::stopped || can_run() || executor_can_poll() || !busy();
      });
    } else if (state_ != State::running) {
      break;  // all is drained, or a backend failed and no thread is inside one any more
    }         // else a thaw has taken the turn away again
  }
  idle_.wait(lock, [this] { return !running_ && !polling_; });
  while (!async_.empty()) poll_first(lock);  // these end soon, because their backends are aborted
  queue_.clear();
  state_ = State::over;
  lock.unlock();
  listener_.stopped();
  wake_waiting();
}

void Executor::drive(const WorkState& work, WorkProgress goal, Clock::time_point began) {
  Lock lock(mutex_);
  ++drivers_;
  auto sleep = Clock::duration(kFirstWakeUp);
  auto now = began;  // read again whenever this thread has waited
  auto yield_until = began + kYield;
  while (!work.reached(goal) && state_ != State::over) {
    if (driver_can_run()) {
      now = run_next(lock, now);
      yield_until = now + kYield;
      continue;
    }
    if (can_poll()) {
      poll_first(lock);
      now = Clock::now();
      continue;
    }
    if (now < yield_until) {
      lock.unlock();
      ::sched_yield();
      lock.lock();
      now = Clock::now();
      continue;
    }
    const auto woken = [&] {
      return work.reached(goal) || state_ == State::over || driver_can_run() || can_poll();
    };
    const bool came = waiting_.wait_for(lock, sleep, woken);
    now = Clock::now();
    if (came) continue;
    sleep = std::min<Clock::duration>(2 * sleep, kLastWakeUp);
    if (running_ || state_ != State::running) continue;
    listener_.nothing_runs();
  }
  --drivers_;
  if (state_ != State::over) listener_.waited(began, now);
  // The executor thread takes over the batches that this thread no longer runs or polls.
  if (can_run() || can_poll()) idle_.notify_one();
}

void Executor::waited(Clock::time_point begin, Clock::time_point end) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::over) listener_.waited(begin, end);
}

}  // namespace hvd::detail
