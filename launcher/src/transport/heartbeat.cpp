#include "transport/heartbeat.hpp"

#include <algorithm>
#include <utility>

namespace hvd::launcher {

bool Silence::too_long(Clock::time_point now, std::chrono::milliseconds interval,
                       std::chrono::milliseconds limit) noexcept {
  const auto late = now - looked_ - interval;
  looked_ = now;
  if (late > Clock::duration::zero()) heard_ = std::min(heard_ + late, now);
  return now - heard_ > limit;
}

void LinkHeartbeat::start(std::chrono::milliseconds limit, std::function<void()> beat,
                          std::function<void()> on_silence) {
  limit_ = limit;
  beat_ = std::move(beat);
  on_silence_ = std::move(on_silence);
  silence_ = Silence(Clock::now());
  tick();
}

void LinkHeartbeat::heard() noexcept {
  excused_ = false;
  silence_.heard(Clock::now());
}

void LinkHeartbeat::stop() {
  on_silence_ = nullptr;
  timer_.cancel();
}

void LinkHeartbeat::tick() {
  beat_();
  timer_.expires_after(kInterval);
  timer_.async_wait([this](boost::system::error_code error) {
    if (error || !on_silence_) return;
    const bool silent = silence_.too_long(Clock::now(), kInterval, limit_);
    if (silent && !excused_) {
      std::exchange(on_silence_, nullptr)();
      return;
    }
    tick();
  });
}

}  // namespace hvd::launcher
