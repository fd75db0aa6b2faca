#include <atomic>
#include <condition_variable>
#include <mutex>

#include <hvd/core/error.hpp>
#include <hvd/core/work.hpp>

namespace hvd {

struct WorkState::Impl {
  std::atomic<bool> done{false};
  std::exception_ptr error;  // written before `done`
  std::mutex mutex;
  std::condition_variable changed;
};

WorkState::WorkState() : impl_(std::make_unique<Impl>()) {}
WorkState::~WorkState() = default;

void WorkState::complete(std::exception_ptr error) noexcept {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->done.load(std::memory_order_relaxed)) return;
  impl_->error = std::move(error);
  impl_->done.store(true, std::memory_order_release);
  impl_->changed.notify_all();
}

bool WorkState::done() const noexcept { return impl_->done.load(std::memory_order_acquire); }

bool WorkState::wait_until(Deadline deadline) const {
  if (done()) return true;
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_until(lock, deadline, [this] { return done(); });
}

std::exception_ptr WorkState::error() const noexcept { return done() ? impl_->error : nullptr; }

void Work::wait() const {
  // The engine bounds every operation; the hour only keeps the clock arithmetic finite.
  while (!wait_until(Clock::now() + std::chrono::hours(1))) {
  }
}

bool Work::wait_until(Deadline deadline) const {
  if (!state_) throw Error(Errc::invalid_argument, "wait on an empty Work");
  if (!state_->wait_until(deadline)) return false;
  if (const std::exception_ptr error = state_->error()) std::rethrow_exception(error);
  return true;
}

bool Work::done() const noexcept { return state_ && state_->done(); }

std::exception_ptr Work::error() const noexcept { return state_ ? state_->error() : nullptr; }

}  // namespace hvd
