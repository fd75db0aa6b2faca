#include "arrivals/wake_event.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <hvd/core/error.hpp>

namespace hvd {

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

}  // namespace hvd
