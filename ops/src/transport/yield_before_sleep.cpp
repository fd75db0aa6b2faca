#include "transport/yield_before_sleep.hpp"

#include <sched.h>

namespace hvd::detail {
namespace {

constexpr std::chrono::microseconds kYield{100};

}  // namespace

bool YieldBeforeSleep::pause() noexcept {
  const Clock::time_point now = Clock::now();
  if (until_ == Clock::time_point{}) until_ = now + kYield;
  if (now >= until_) return false;
  ::sched_yield();
  return true;
}

}  // namespace hvd::detail
