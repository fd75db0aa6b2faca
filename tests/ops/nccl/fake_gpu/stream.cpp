#include "fake_gpu/stream.hpp"

#include <algorithm>
#include <utility>

#include "fake_gpu/runtime.hpp"

namespace hvd::test::fake_gpu {

Stream::Stream(int device) : device_(device), worker_([this] { work(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(mutex_);
    allowed_ = pushed_;
    ending_ = true;
    changed_.notify_all();
  }
  worker_.join();
}

Ticket Stream::push(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  return ++pushed_;
}

Ticket Stream::tail() const {
  const std::lock_guard lock(mutex_);
  return pushed_;
}

bool Stream::has_run(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  return ran_ >= ticket;
}

bool Stream::query(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  if (ran_ >= ticket) return true;
  allowed_ = std::max(allowed_, ticket);
  changed_.notify_all();
  return false;
}

void Stream::synchronize(Ticket ticket) {
  std::unique_lock lock(mutex_);
  allowed_ = std::max(allowed_, ticket);
  changed_.notify_all();
  changed_.wait(lock, [&] { return ran_ >= ticket; });
}

bool Stream::synchronize_for(Ticket ticket, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  allowed_ = std::max(allowed_, ticket);
  changed_.notify_all();
  return changed_.wait_for(lock, patience, [&] { return ran_ >= ticket; });
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return allowed_ > ran_ || (ending_ && ran_ == pushed_); });
    if (ran_ == pushed_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    if (!runtime().is_broken(device_)) task();
    task = nullptr;
    lock.lock();
    ++ran_;
    changed_.notify_all();
  }
}

}  // namespace hvd::test::fake_gpu
