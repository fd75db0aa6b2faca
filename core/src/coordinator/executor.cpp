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
  const std::lock_guard lock(mutex_);
  return !over_ && runner_->supports(request);
}

void Executor::run(Job job) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(job));
  (drivers_ > 0 ? waiting_ : idle_).notify_one();
}

void Executor::turn_came() {
  const std::lock_guard lock(mutex_);
  (drivers_ > 0 ? waiting_ : idle_).notify_one();
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
         (!queue_.empty() || callbacks_.turn_ready());
}

std::optional<Job> Executor::next() {
  if (queue_.empty()) return callbacks_.take_turn();
  Job job = std::move(queue_.front());
  queue_.pop_front();
  return job;
}

/// Takes the baton, runs one job and gives it back.
void Executor::run_next(Lock& lock) {
  std::optional<Job> job = next();
  if (!job) return;
  baton_taken_ = true;
  lock.unlock();
  const bool good = execute(*job);
  const bool negotiated = job->ticket == 0;
  job.reset();  // what the tensors keep alive goes with them
  if (good && negotiated) callbacks_.job_done();
  lock.lock();
  baton_taken_ = false;
  if (!good) failed_ = true;
  if (drivers_ > 0) waiting_.notify_all();
  if (state_ != State::running || drivers_ == 0) idle_.notify_one();
}

bool Executor::execute(const Job& job) {
  try {
    if (job.ticket != 0 && arrivals_) {
      runner_->announce(job);
      if (!arrivals_->meet(job.ticket, job.digest, job.members)) {
        runner_->retract(job);
        callbacks_.turn_over();
        return true;
      }
    }
    if (job.ticket != 0) callbacks_.turn_committed();
    runner_->run(job, Clock::now() + timeout_);
  } catch (const Error& error) {
    callbacks_.failed(error);
    return false;
  } catch (const std::bad_alloc&) {
    callbacks_.failed(Error(Errc::resource, "out of memory"));
    return false;
  } catch (const std::exception& error) {
    callbacks_.failed(Error(Errc::internal, error.what()));
    return false;
  }
  // Before the works are done: whoever sees them done may submit for the next turn.
  if (job.ticket != 0) callbacks_.turn_over();
  for (const auto& tensor : job.tensors) finish(*tensor);
  return true;
}

void Executor::finish(PendingTensor& tensor) const {
  try {
    if (!tensor.error && tensor.submission.finish) tensor.submission.finish();
  } catch (...) {
    tensor.error = std::current_exception();
  }
  callbacks_.tensor_done(tensor, tensor.error);
}

void Executor::thread_main() {
  Lock lock(mutex_);
  for (;;) {
    idle_.wait(lock, [this] { return state_ != State::running || can_run(); });
    if (state_ == State::stopped) break;
    if (can_run()) {
      run_next(lock);
    } else if (baton_taken_) {
      idle_.wait(lock, [this] { return state_ == State::stopped || !baton_taken_; });
    } else if (state_ != State::running) {
      break;  // drained, or failed while everybody left in peace
    }         // else a thaw has taken the turn away again
  }
  idle_.wait(lock, [this] { return !baton_taken_; });
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
  auto yield_until = began + kYield;
  while (!work.done() && !over_) {
    if (can_run()) {
      run_next(lock);
      yield_until = Clock::now() + kYield;
      continue;
    }
    if (Clock::now() < yield_until) {
      lock.unlock();
      ::sched_yield();
      lock.lock();
      continue;
    }
    const auto something = [&] { return work.done() || over_ || can_run(); };
    if (waiting_.wait_for(lock, look, something)) continue;
    look = std::min<Clock::duration>(2 * look, kLastLook);
    if (baton_taken_ || over_ || state_ != State::running) continue;
    callbacks_.nothing_runs();
  }
  --drivers_;
  if (!over_) callbacks_.waited(began, Clock::now());
  // What this thread leaves behind.
  if (can_run()) idle_.notify_one();
}

}  // namespace hvd
