#include "hierarchy/comm_thread.hpp"

#include <utility>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/start_thread.hpp>

namespace hvd::detail {

CommThread::~CommThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  posted_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void CommThread::begin() {
  const std::lock_guard lock(mutex_);
  ended_ = 0;
}

void CommThread::post(std::function<void()> job) {
  if (!thread_.joinable()) {
    thread_ = detail::start_thread("hvd-comm", [this] { run(); });
  }
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) throw Error(Errc::aborted, "the communication thread was cancelled");
    if (error_) return;  // the next wait throws it
    jobs_.push_back(std::move(job));
  }
  posted_.notify_one();
}

void CommThread::wait_for(std::size_t jobs) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return ended_ >= jobs || error_; });
  if (error_) std::rethrow_exception(error_);
}

std::exception_ptr CommThread::cancel() noexcept {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  jobs_.clear();
  return error_;
}

void CommThread::drain() noexcept {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return !busy_; });
}

void CommThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    posted_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
    if (ending_) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      job();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !cancelled_) {
      error_ = error;
      jobs_.clear();
      lock.unlock();
      on_failure_();
      lock.lock();
    }
    ++ended_;
    busy_ = false;
    finished_.notify_one();
  }
}

}  // namespace hvd::detail
