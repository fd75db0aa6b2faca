#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include <hvd/core/error.hpp>
#include <hvd/core/work.hpp>

namespace hvd {

struct WorkState::Impl {
  std::shared_ptr<WorkDriver> driver;
  std::atomic<bool> done{false};
  std::exception_ptr error;  // written before `done`
  std::mutex mutex;
  std::condition_variable changed;
};

WorkState::WorkState(std::shared_ptr<WorkDriver> driver) : impl_(std::make_unique<Impl>()) {
  impl_->driver = std::move(driver);
}
WorkState::~WorkState() = default;

void WorkState::complete(std::exception_ptr error) noexcept {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->done.load(std::memory_order_relaxed)) return;
  impl_->error = std::move(error);
  impl_->done.store(true, std::memory_order_release);
  impl_->changed.notify_all();
}

bool WorkState::done() const noexcept { return impl_->done.load(std::memory_order_acquire); }

void WorkState::wait() const {
  if (!done() && impl_->driver) impl_->driver->drive(*this);
  if (done()) return;
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [this] { return done(); });
}

bool WorkState::wait_until(Deadline deadline) const {
  if (done()) return true;
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_until(lock, deadline, [this] { return done(); });
}

std::exception_ptr WorkState::error() const noexcept { return done() ? impl_->error : nullptr; }

void WorkState::observed() const noexcept {
  if (impl_->driver) impl_->driver->observed();
}

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
  state.wait();
  show_result(state);
}

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
