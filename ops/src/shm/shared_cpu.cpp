#include "shm/shared_cpu.hpp"

namespace hvd::detail {

bool SharedCpu::begins_to_wait(Place own, int awaited, Place theirs,
                               Clock::time_point now) noexcept {
  // Of two ranks the lower one speaks. It watches one other rank at a time.
  if (told_ || awaited < rank_ || (other_ >= 0 && awaited != other_)) return false;
  if (cpu_of(own) != cpu_of(theirs)) {
    other_ = -1;
    return false;
  }
  if (other_ < 0) {
    other_ = awaited;
    since_ = now;
    times_ = 0;
  } else if (theirs != last_) {
    ++times_;
  }
  last_ = theirs;
  told_ = times_ >= kOften && now - since_ >= kLong;
  return told_;
}

}  // namespace hvd::detail
