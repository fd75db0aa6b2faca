#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/system_error.hpp>
#include <fmt/format.h>
#include <sched.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/start_thread.hpp>
#include <hvd/core/log.hpp>
#include <hvd/core/types.hpp>

namespace hvd {
namespace {

// The time for which the loop polls after `expect_more` before it sleeps. It is a few times what a
// sleep in the kernel costs.
constexpr std::chrono::microseconds kYield{100};

void run_to_the_end(boost::asio::io_context& io, const Clock::time_point& awake_until) {
  while (!io.stopped()) {
    if (io.poll() > 0) continue;
    if (Clock::now() < awake_until) {
      ::sched_yield();
    } else {
      io.run_one();
    }
  }
}

// A handler that throws is a defect of this library. Ending the thread would leave every wait on
// the loop to its deadline, so the loop says what happened and goes on with the next handler.
void run(boost::asio::io_context& io, const Clock::time_point& awake_until) {
  for (;;) {
    try {
      run_to_the_end(io, awake_until);
      return;
    } catch (const std::exception& error) {
      log(LogLevel::error, -1, fmt::format("exception in the event loop: {}", error.what()));
    } catch (...) {
      log(LogLevel::error, -1, "unknown exception in the event loop");
    }
  }
}

/// Lets a thread wait for the end of a task and get its exception. The object is on the stack of
/// that thread.
class Outcome {
 public:
  void set(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    ended_ = true;
    changed_.notify_all();
  }
  void get() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::exception_ptr error_;
};

/// Sets the outcome once: when the task has run, or when it is dropped without having run.
class BlockingCall {
 public:
  explicit BlockingCall(Outcome& outcome) : outcome_(&outcome) {}
  BlockingCall(const BlockingCall&) = delete;
  BlockingCall& operator=(const BlockingCall&) = delete;
  ~BlockingCall() {
    if (outcome_ != nullptr) outcome_->set(std::make_exception_ptr(dropped()));
  }

  void run(const std::function<void()>& task) {
    std::exception_ptr error;
    try {
      task();
    } catch (...) {
      error = std::current_exception();
    }
    // The waiting thread may end right after this.
    std::exchange(outcome_, nullptr)->set(std::move(error));
  }

 private:
  static Error dropped() {
    return Error(Errc::aborted, "the event loop ended before it ran a task");
  }

  Outcome* outcome_;
};

}  // namespace

struct EventLoop::Impl {
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  // Asio opens its descriptors for the first timer or socket. With this timer, a lack of
  // descriptors shows here.
  boost::asio::steady_timer first{io};
  Clock::time_point awake_until{};  // loop thread
  std::thread thread = detail::start_thread("hvd-loop", [this] { run(io, awake_until); });
};

EventLoop::EventLoop() try : impl_(std::make_unique<Impl>()) {
} catch (const boost::system::system_error& error) {  // there are no descriptors left
  throw Error(Errc::resource, fmt::format("cannot make an event loop: {}", error.what()));
}

EventLoop::~EventLoop() {
  impl_->io.stop();
  impl_->thread.join();
}

void EventLoop::post(std::function<void()> task) { boost::asio::post(impl_->io, std::move(task)); }

void EventLoop::run_sync(const std::function<void()>& task) {
  if (on_loop_thread()) {
    task();
    return;
  }
  Outcome outcome;
  post([&task, call = std::make_shared<BlockingCall>(outcome)] { call->run(task); });
  outcome.get();
}

void EventLoop::expect_more() noexcept { impl_->awake_until = Clock::now() + kYield; }

bool EventLoop::on_loop_thread() const noexcept {
  return impl_->thread.get_id() == std::this_thread::get_id();
}

boost::asio::io_context& EventLoop::io() noexcept { return impl_->io; }

}  // namespace hvd
