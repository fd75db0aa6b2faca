#include "coordinator/executor.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

namespace hvd {
namespace {

// A thread that waits lets others have the core for as long as a sleep in the kernel would cost
// several times over.
constexpr std::chrono::microseconds kYield{100};

// Then it looks now and then whether the frozen schedule holds up what it waits for.
constexpr std::chrono::milliseconds kFirstLook{1};
constexpr std::chrono::milliseconds kLastLook{100};

// Between two looks after what is in the air, where nobody waits for it.
constexpr std::chrono::microseconds kRest{50};

// Enough that a device has its next work before it is through with the last.
constexpr std::size_t kMostFlights = 4;

/// All that a backend supports or not, in one number, which is not 0.
std::uint64_t kind_of(const Request& request) {
  const auto byte = [](auto value) { return static_cast<std::uint64_t>(value) & 0xFF; };
  return std::uint64_t{static_cast<std::uint32_t>(request.device.index)} << 32 |
         (byte(request.device.kind) + 1) << 24 | byte(request.kind) << 16 |
         byte(request.dtype) << 8 | byte(request.op);
}

}  // namespace

Executor::Executor(std::unique_ptr<CollectiveRunner> runner, std::unique_ptr<Arrivals> arrivals,
                   Clock::duration timeout, Callbacks callbacks)
    : runner_(std::move(runner)),
      arrivals_(std::move(arrivals)),
      timeout_(timeout),
      callbacks_(std::move(callbacks)),
      thread_([this] { thread_main(); }) {
  pthread_setname_np(thread_.native_handle(), "hvd-executor");
}

Executor::~Executor() {
  stop();
  join();
}

bool Executor::supports(const Request& request) {
  // Nearly always what was asked for last; the lock is for the runner, which `join` takes away.
  const std::uint64_t kind = kind_of(request);
  if (supported_.load(std::memory_order_relaxed) == kind) return true;
  const std::lock_guard lock(mutex_);
  if (over_ || !runner_->supports(request)) return false;
  supported_.store(kind, std::memory_order_relaxed);
  return true;
}

void Executor::run(Job job) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(job));
  wake_one();
}

void Executor::turn_came() {
  const std::lock_guard lock(mutex_);
  wake_one();
}

/// Who will run what has come.
void Executor::wake_one() {
  const bool somebody_waits = drivers_ > 0 && flights_.empty();
  (somebody_waits ? waiting_ : idle_).notify_one();
}

void Executor::wake_waiting() {
  const std::lock_guard lock(mutex_);
  if (drivers_ > 0) waiting_.notify_all();
}

void Executor::settle(std::span<const std::uint64_t> reached) noexcept {
  const std::lock_guard lock(mutex_);
  if (arrivals_) arrivals_->settle(reached);
}

void Executor::drain() {
  const std::lock_guard lock(mutex_);
  if (state_ == State::running) state_ = State::draining;
  idle_.notify_one();
}

void Executor::stop() noexcept {
  const std::lock_guard lock(mutex_);
  state_ = State::stopped;
  idle_.notify_one();
  if (over_) return;
  runner_->abort();
  if (arrivals_) arrivals_->abort();
}

void Executor::join() {
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  runner_.reset();
  arrivals_.reset();
  callbacks_ = {};
}

bool Executor::can_run() const {
  return state_ != State::stopped && !over_ && !failed_ && !baton_taken_ &&
         flights_.size() < kMostFlights && (!queue_.empty() || callbacks_.turn_ready());
}

bool Executor::can_land() const { return !flights_.empty() && !landing_; }

/// As `can_run`, for a thread that waits for a work: it may be in the air, and must not land while
/// this thread waits for others to come to the next.
bool Executor::may_run() const { return flights_.empty() && can_run(); }

/// As `can_land`, for the executor thread: who waits sees to it first.
bool Executor::may_land() const { return drivers_ == 0 && can_land(); }

bool Executor::busy() const { return baton_taken_ || landing_ || !flights_.empty(); }

/// Into `job_`.
bool Executor::take_next(Clock::time_point now) {
  if (queue_.empty()) return callbacks_.take_turn(job_, now);
  job_ = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

/// Takes the baton, runs one job and gives it back. `now`, and then what is returned, is the time:
/// the clock is read when a job begins and when it ends, by whoever has to know.
Clock::time_point Executor::run_next(Lock& lock, Clock::time_point now) {
  if (!take_next(now)) return now;
  baton_taken_ = true;
  if (!flights_.empty() && runner_->lands_first(job_, flights_.back().ran.backend)) land_all(lock);
  const bool runs = !failed_;
  lock.unlock();
  std::optional<CollectiveRunner::Ran> ran;
  if (runs) ran = execute(job_);
  const bool flies = ran && ran->flight;
  InTheAir flown;
  if (flies) {
    flown = {std::exchange(job_, {}), std::move(*ran)};
    now = Clock::now();
  } else {
    job_.tensors.clear();  // what they keep alive goes with them
    if (ran && job_.ticket == 0) callbacks_.job_done();
    if (ran) now = ran->time;
  }
  lock.lock();
  baton_taken_ = false;
  if (!ran) failed_ = true;
  if (flies) flights_.push_back(std::move(flown));
  if (drivers_ > 0) waiting_.notify_all();
  if (state_ != State::running || drivers_ == 0 || !flights_.empty()) idle_.notify_one();
  return now;
}

/// Returns it as it ran; nothing when a backend failed.
std::optional<CollectiveRunner::Ran> Executor::execute(const Job& job) {
  try {
    if (job.ticket != 0 && arrivals_) {
      runner_->announce(job);
      if (!arrivals_->meet(job.ticket, job.digest, job.members)) {
        runner_->retract();
        callbacks_.turn_withdrawn();
        return CollectiveRunner::Ran{nullptr, Clock::now(), {}};
      }
    }
    if (job.ticket != 0) callbacks_.turn_committed();
    const Clock::time_point began = Clock::now();
    CollectiveRunner::Ran ran = runner_->run(job, began, began + timeout_);
    if (ran.flight) {
      callbacks_.took_off(job);
      return ran;
    }
    // Before the works are done: whoever sees them done may submit for the next turn.
    callbacks_.ran(job);
    // Of a lone tensor that has nothing more to be done, that is at once.
    const bool at_once = job.tensors.size() == 1 && !job.tensors.front()->submission.finish;
    finish(job);
    if (!at_once) ran.time = Clock::now();
    return ran;
  } catch (...) {
    fail();
  }
  return std::nullopt;
}

/// Of what is being thrown.
void Executor::fail() const {
  try {
    throw;
  } catch (const Error& error) {
    callbacks_.failed(error);
  } catch (const std::bad_alloc&) {
    callbacks_.failed(Error(Errc::resource, "out of memory"));
  } catch (const std::exception& error) {
    callbacks_.failed(Error(Errc::internal, error.what()));
  }
}

/// Looks once after the flight that lands next; whether it has landed.
bool Executor::land_next(Lock& lock) {
  landing_ = true;
  InTheAir& first = flights_.front();  // where it stays: others come behind it
  lock.unlock();
  bool over = true;
  bool failed = false;
  try {
    over = landed(first);
  } catch (...) {
    failed = true;
    fail();
  }
  if (over) first.job.tensors.clear();
  if (!over) ::sched_yield();
  lock.lock();
  landing_ = false;
  failed_ = failed_ || failed;
  if (over) {
    flights_.pop_front();
    waiting_.notify_all();
  }
  // There may be room for the next to take off, which those that wait leave to the executor thread.
  if (state_ != State::running || drivers_ == 0 || can_run()) idle_.notify_one();
  return over;
}

bool Executor::landed(const InTheAir& flown) const {
  if (!flown.ran.flight->landed()) return false;
  runner_->landed(flown.job, flown.ran);
  callbacks_.landed(flown.job);
  finish(flown.job);
  if (flown.job.ticket == 0) callbacks_.job_done();
  return true;
}

void Executor::land_all(Lock& lock) {
  while (!flights_.empty()) {
    if (can_land()) {
      land_next(lock);
      continue;
    }
    lock.unlock();  // somebody else looks
    ::sched_yield();
    lock.lock();
  }
}

void Executor::finish(const Job& job) const {
  for (const auto& tensor : job.tensors) finish(*tensor);
}

void Executor::finish(PendingTensor& tensor) const {
  try {
    if (!tensor.error && tensor.submission.finish) tensor.submission.finish();
  } catch (...) {
    tensor.error = std::current_exception();
  }
  callbacks_.tensor_done(tensor, tensor.error);
}

/// As `land_next`. A look costs the device's driver too: after a while there is a rest behind each.
void Executor::look(Lock& lock, Clock::time_point& yield_until) {
  const bool over = land_next(lock);
  const auto now = Clock::now();
  if (over) {
    yield_until = now + kYield;
  } else if (now >= yield_until) {
    idle_.wait_for(lock, kRest, [this] { return state_ == State::stopped || can_run(); });
  }
}

void Executor::thread_main() {
  Lock lock(mutex_);
  Clock::time_point yield_until;  // while something is in the air that nobody waits for
  for (;;) {
    idle_.wait(lock, [this] { return state_ != State::running || can_run() || may_land(); });
    if (state_ == State::stopped) break;
    if (can_run()) {
      yield_until = run_next(lock, Clock::now()) + kYield;
    } else if (may_land()) {
      look(lock, yield_until);
    } else if (busy()) {
      idle_.wait(lock,
                 [this] { return state_ == State::stopped || can_run() || may_land() || !busy(); });
    } else if (state_ != State::running) {
      break;  // drained, or failed while everybody left in peace
    }         // else a thaw has taken the turn away again
  }
  idle_.wait(lock, [this] { return !baton_taken_ && !landing_; });
  while (!flights_.empty()) land_next(lock);  // their backends are aborted
  queue_.clear();
  over_ = true;
  lock.unlock();
  callbacks_.stopped();
  wake_waiting();
}

void Executor::drive(const WorkState& work) {
  Lock lock(mutex_);
  ++drivers_;
  auto look = Clock::duration(kFirstLook);
  const auto began = Clock::now();
  auto now = began;  // read again whenever this thread has waited
  auto yield_until = began + kYield;
  while (!work.done() && !over_) {
    if (may_run()) {
      now = run_next(lock, now);
      yield_until = now + kYield;
      continue;
    }
    if (can_land()) {
      land_next(lock);
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
    const auto something = [&] { return work.done() || over_ || may_run() || can_land(); };
    const bool came = waiting_.wait_for(lock, look, something);
    now = Clock::now();
    if (came) continue;
    look = std::min<Clock::duration>(2 * look, kLastLook);
    if (baton_taken_ || over_ || state_ != State::running) continue;
    callbacks_.nothing_runs();
  }
  --drivers_;
  if (!over_) callbacks_.waited(began, now);
  // What this thread leaves behind.
  if (can_run() || can_land()) idle_.notify_one();
}

}  // namespace hvd
