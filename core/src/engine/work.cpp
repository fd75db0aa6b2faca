#include <optional>
#include <string>
#include <utility>

#include <hvd/core/error.hpp>
#include <hvd/core/work.hpp>

#include "engine/work_state.hpp"

namespace hvd {

namespace detail {

void WorkState::launch(std::shared_ptr<void> end, std::uint64_t turn) noexcept {
  const std::lock_guard lock(mutex_);
  if (done()) return;
  turn_ = turn;
  end_ = std::move(end);
  progress_.store(WorkProgress::launched, std::memory_order_release);
  changed_.notify_all();
}

void WorkState::complete(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (done()) return;
  error_ = std::move(error);
  end_.reset();
  progress_.store(WorkProgress::done, std::memory_order_release);
  changed_.notify_all();
}

void WorkState::wait(WorkProgress goal) const {
  if (!reached(goal) && driver_) driver_->drive(*this, goal);
  if (reached(goal)) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reached(goal); });
}

std::shared_ptr<void> WorkState::end() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

bool WorkState::wait_until(Deadline deadline) const {
  if (done()) return true;
  const Clock::time_point began = Clock::now();
  std::unique_lock lock(mutex_);
  const bool is_done = changed_.wait_until(lock, deadline, [this] { return done(); });
  lock.unlock();  // the driver takes a lock of its own
  if (driver_) driver_->waited(began, Clock::now());
  return is_done;
}

void WorkState::observed() const noexcept {
  if (driver_) driver_->observed();
}

}  // namespace detail

using detail::WorkProgress;
using detail::WorkState;

namespace {

const WorkState& existing(const std::shared_ptr<WorkState>& state) {
  if (!state) throw Error(Errc::invalid_argument, "wait on an empty Work");
  return *state;
}

/// Shows the end of an operation to its user. An `Error` is copied and thrown: several threads may
/// wait for one work, and each gets an exception of its own.
void show_result(const WorkState& state) {
  state.observed();
  const std::exception_ptr error = state.error();
  if (!error) return;
  std::optional<Error> own;
  try {
    std::rethrow_exception(error);
  } catch (const Error& shared) {
    if (shared.what() == shared.fault().cause) {  // the error was made from a message
      own.emplace(shared.code(), std::string(shared.what()));
    } else {
      own.emplace(shared.code(), shared.fault());
    }
  }
  throw Error(*own);
}

}  // namespace

void Work::wait() const {
  const WorkState& state = existing(state_);
  state.wait(WorkProgress::done);
  show_result(state);
}

std::shared_ptr<void> Work::wait_launched() const {
  const WorkState& state = existing(state_);
  state.wait(WorkProgress::launched);
  if (std::shared_ptr<void> end = state.end()) {
    state.observed();
    return end;
  }
  show_result(state);
  return nullptr;
}

std::uint64_t Work::turn() const noexcept { return state_ ? state_->turn() : 0; }

bool Work::wait_until(Deadline deadline) const {
  const WorkState& state = existing(state_);
  if (!state.wait_until(deadline)) return false;
  show_result(state);
  return true;
}

bool Work::done() const noexcept {
  if (!state_ || !state_->done()) return false;
  state_->observed();
  return true;
}

std::exception_ptr Work::error() const noexcept { return state_ ? state_->error() : nullptr; }

}  // namespace hvd
