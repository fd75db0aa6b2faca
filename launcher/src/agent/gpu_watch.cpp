#include "agent/gpu_watch.hpp"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/signals.hpp"

namespace hvd::launcher {

/// The state that both threads share.
struct GpuWatch::Desk {
  std::mutex mutex;
  std::condition_variable changed;
  bool wanted = false;
  bool stopped = false;  ///< the watch is gone; written by its thread
  bool over = false;     ///< the thread has nothing more to do
  std::function<void(std::vector<GpuState>)> deliver;

  void work(std::unique_ptr<Nvml> nvml) {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return wanted || stopped; });
      if (stopped) break;
      wanted = false;
      lock.unlock();
      auto gpus = nvml->look();
      lock.lock();
      if (!stopped) deliver(std::move(gpus));
    }
    lock.unlock();
    nvml.reset();
    lock.lock();
    over = true;
    changed.notify_all();
  }
};

GpuWatch::GpuWatch(boost::asio::io_context& io) : io_(io), patience_(io) {}

GpuWatch::~GpuWatch() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(desk_->mutex);
  desk_->stopped = true;
  desk_->changed.notify_all();
  const bool over = desk_->changed.wait_for(lock, kPatience, [this] { return desk_->over; });
  lock.unlock();
  if (over) {
    thread_.join();
  } else {
    thread_.detach();  // the driver hangs, which must not keep the agent from ending
  }
}

void GpuWatch::begin() {
  if (std::exchange(begun_, true)) return;
  auto nvml = Nvml::open();
  if (!nvml) return;
  desk_ = std::make_shared<Desk>();
  desk_->deliver = [this](std::vector<GpuState> gpus) {
    boost::asio::post(io_, [this, desk = desk_, now = std::move(gpus)]() mutable {
      if (!desk->stopped) seen(std::move(now));
    });
  };
  const BlockSignals blocked;  // signals are left to the agent's thread
  try {
    thread_ = std::thread(
        [desk = desk_, library = std::move(nvml)]() mutable { desk->work(std::move(library)); });
  } catch (const std::system_error&) {
    desk_.reset();  // without a thread NVML counts as missing
  }
}

void GpuWatch::look(OnSeen on_seen) {
  begin();
  if (!desk_) return on_seen({});
  waiting_.push_back(std::move(on_seen));
  if (waiting_.size() > 1) return;  // an earlier call has asked; all callers get that answer
  {
    const std::lock_guard lock(desk_->mutex);
    desk_->wanted = true;
  }
  desk_->changed.notify_all();
  patience_.expires_after(kPatience);
  patience_.async_wait([this, desk = desk_](boost::system::error_code error) {
    if (!error && !desk->stopped) answer();
  });
}

void GpuWatch::seen(std::vector<GpuState> gpus) {
  last_ = std::move(gpus);
  last_at_ = Clock::now();
  answer();
}

void GpuWatch::answer() {
  patience_.cancel();
  if (Clock::now() - last_at_ > kFresh) last_.clear();
  for (const OnSeen& on_seen : std::exchange(waiting_, {})) on_seen(last_);
}

}  // namespace hvd::launcher
