#include "transport/backoff.hpp"

#include <hwy/cache_control.h>
#include <sched.h>

namespace hvd {
namespace {

constexpr int kSpins = 200;  // about 5 µs
constexpr std::chrono::microseconds kYield{100};

}  // namespace

bool Backoff::pause() noexcept {
  if (tries_ < spins_) {
    ++tries_;
    hwy::Pause();
    return true;
  }
  const auto now = Clock::now();
  if (tries_ == spins_) {
    ++tries_;
    yield_until_ = now + kYield;
  }
  if (now >= yield_until_) return false;
  ::sched_yield();
  return true;
}

int spins_for(int ranks) noexcept {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return 0;
  return spins_for(ranks, CPU_COUNT(&usable));
}

int spins_for(int ranks, int cores) noexcept { return cores >= ranks ? kSpins : 0; }

}  // namespace hvd
