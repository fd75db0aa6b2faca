#include "transport/poll.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {
namespace {

constexpr std::chrono::microseconds kYield{100};

}  // namespace

bool poll_until(std::span<pollfd> fds, Deadline deadline) {
  using std::chrono::milliseconds;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    const auto wait = std::clamp(left, milliseconds{0}, milliseconds{60'000});
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(wait.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) {
      throw Error(Errc::resource, std::string("poll: ") + std::strerror(errno));
    }
    if (Clock::now() >= deadline) return false;
  }
}

WakeEvent::WakeEvent() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) throw Error(Errc::resource, fmt::format("eventfd: {}", std::strerror(errno)));
}

void WakeEvent::raise() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

void WakeEvent::clear() const noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t read = ::read(fd_.get(), &count, sizeof count);
}

bool YieldBeforeSleep::pause() noexcept {
  const Clock::time_point now = Clock::now();
  if (until_ == Clock::time_point{}) until_ = now + kYield;
  if (now >= until_) return false;
  ::sched_yield();
  return true;
}

}  // namespace hvd::detail
