#include <exception>
#include <future>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <pthread.h>

#include <hvd/core/error.hpp>
#include <hvd/core/event_loop.hpp>
#include <hvd/core/log.hpp>

namespace hvd {
namespace {

// A handler that throws is a defect of this library. Ending the thread would leave every wait on
// the loop to its deadline, so the loop says what happened and goes on with the next handler.
void run(boost::asio::io_context& io) {
  for (;;) {
    try {
      io.run();
      return;
    } catch (const std::exception& error) {
      log(LogLevel::error, -1, fmt::format("exception in the event loop: {}", error.what()));
    } catch (...) {
      log(LogLevel::error, -1, "unknown exception in the event loop");
    }
  }
}

}  // namespace

struct EventLoop::Impl {
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  std::thread thread{[this] { run(io); }};
};

EventLoop::EventLoop() : impl_(std::make_unique<Impl>()) {
  ::pthread_setname_np(impl_->thread.native_handle(), "hvd-loop");
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
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> result = done->get_future();
  post([&task, done = std::move(done)] {
    try {
      task();
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  });
  try {
    result.get();
  } catch (const std::future_error&) {
    throw Error(Errc::aborted, "the event loop ended before it ran a task");
  }
}

bool EventLoop::on_loop_thread() const noexcept {
  return impl_->thread.get_id() == std::this_thread::get_id();
}

boost::asio::io_context& EventLoop::io() noexcept { return impl_->io; }

}  // namespace hvd
