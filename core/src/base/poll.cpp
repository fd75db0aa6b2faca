#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <system_error>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/poll.hpp>

namespace hvd {
namespace {

[[noreturn]] void refuse_call(const char* call) {
  const int reason = errno;
  throw Error(Errc::resource, fmt::format("{}: {}", call, std::system_category().message(reason)));
}

}  // namespace

bool poll_until(std::span<pollfd> fds, Deadline deadline) {
  using std::chrono::milliseconds;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    const auto wait = std::clamp(left, milliseconds{0}, milliseconds{60'000});
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(wait.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) refuse_call("poll");
    if (Clock::now() >= deadline) return false;
  }
}

WakeEvent::WakeEvent() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) refuse_call("eventfd");
}

void WakeEvent::raise() const noexcept {
  const std::uint64_t one = 1;
  // The write fails only when the counter is full, and then the event was raised before.
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

bool WakeEvent::raised() const noexcept {
  pollfd fd = interest();
  return ::poll(&fd, 1, 0) > 0;
}

void WakeEvent::clear() const noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t read = ::read(fd_.get(), &count, sizeof count);
}

}  // namespace hvd
