#include "hierarchy/carrier.hpp"

#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include <hvd/core/error.hpp>

namespace hvd {

Carrier::~Carrier() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  posted_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Carrier::begin() {
  const std::lock_guard lock(mutex_);
  through_ = 0;
}

void Carrier::post(std::function<void()> job) {
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
      throw Error(Errc::resource, fmt::format("no thread: {}", error.what()));
    }
    ::pthread_setname_np(thread_.native_handle(), "hvd-carrier");
  }
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) throw Error(Errc::aborted, "the carrier was cancelled");
    if (error_) return;  // the next wait tells
    jobs_.push_back(std::move(job));
  }
  posted_.notify_one();
}

void Carrier::wait_for(std::size_t jobs) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return through_ >= jobs || error_; });
  if (error_) std::rethrow_exception(error_);
}

std::exception_ptr Carrier::cancel() noexcept {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  jobs_.clear();
  return error_;
}

void Carrier::drain() noexcept {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return !busy_; });
}

void Carrier::run() {
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
    ++through_;
    busy_ = false;
    finished_.notify_one();
  }
}

}  // namespace hvd
