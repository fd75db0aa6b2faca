#include "engine/heartbeat_timer.hpp"

#include <boost/asio/steady_timer.hpp>

namespace hvd::detail {

struct HeartbeatTimer::Impl : std::enable_shared_from_this<Impl> {
  Impl(EventLoop& loop, Clock::duration every, std::function<void()> tick)
      : timer(loop.io()), interval(every), on_tick(std::move(tick)) {}

  void arm() {
    timer.expires_after(interval);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->stopped) return;
      self->arm();  // before the call, which may throw
      self->on_tick();
    });
  }

  boost::asio::steady_timer timer;
  Clock::duration interval;
  std::function<void()> on_tick;
  bool stopped = false;
};

HeartbeatTimer::HeartbeatTimer(EventLoop& loop, Clock::duration interval,
                               std::function<void()> on_tick)
    : impl_(std::make_shared<Impl>(loop, interval, std::move(on_tick))) {}

HeartbeatTimer::~HeartbeatTimer() = default;

void HeartbeatTimer::start() { impl_->arm(); }

void HeartbeatTimer::stop() noexcept {
  impl_->stopped = true;
  impl_->timer.cancel();
}

}  // namespace hvd::detail
