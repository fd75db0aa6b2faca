#include "net/blocking_io.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hvd/core/error.hpp>

#include "net/socket.hpp"

namespace hvd::net {
namespace {

bool poll_fds(std::span<pollfd> fds, Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    constexpr std::chrono::milliseconds kLongest{60'000};
    const auto wait = std::clamp(left, std::chrono::milliseconds{0}, kLongest);
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(wait.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) {
      throw Error(Errc::resource, "poll: " + describe_errno(errno));
    }
    if (Clock::now() >= deadline) return false;
  }
}

void throw_if_raised(const pollfd& interrupt) {
  if (interrupt.revents != 0) throw Error(Errc::aborted, "aborted while connecting");
}

}  // namespace

Interrupt::Interrupt() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) throw Error(Errc::resource, "eventfd: " + describe_errno(errno));
}

void Interrupt::raise() noexcept {
  const std::uint64_t one = 1;
  // The write fails only when the counter is full, and then the interrupt was raised before.
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof(one));
}

bool Interrupt::raised() const noexcept {
  pollfd fd{fd_.get(), POLLIN, 0};
  return ::poll(&fd, 1, 0) > 0;
}

bool wait_ready(int fd, Ready what, Deadline deadline, const Interrupt& interrupt) {
  const auto events = static_cast<short>(what == Ready::read ? POLLIN : POLLOUT);
  std::array<pollfd, 2> fds{{{interrupt.fd(), POLLIN, 0}, {fd, events, 0}}};
  const bool ready = poll_fds(fds, deadline);
  throw_if_raised(fds[0]);
  return ready;
}

void pause_until(Deadline deadline, const Interrupt& interrupt) {
  std::array<pollfd, 1> fds{{{interrupt.fd(), POLLIN, 0}}};
  if (poll_fds(fds, deadline)) throw_if_raised(fds[0]);
}

std::size_t read_some(int fd, std::span<std::byte> out, Deadline deadline,
                      const Interrupt& interrupt) {
  for (;;) {
    const ssize_t n = ::recv(fd, out.data(), out.size(), MSG_DONTWAIT);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) throw StreamLost("connection closed");
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_ready(fd, Ready::read, deadline, interrupt)) return 0;
    } else if (errno != EINTR) {
      throw StreamLost(describe_errno(errno));
    }
  }
}

bool read_exact(int fd, std::span<std::byte> out, Deadline deadline, const Interrupt& interrupt) {
  while (!out.empty()) {
    const std::size_t n = read_some(fd, out, deadline, interrupt);
    if (n == 0) return false;
    out = out.subspan(n);
  }
  return true;
}

bool write_all(int fd, std::span<const std::byte> bytes, Deadline deadline,
               const Interrupt& interrupt) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_ready(fd, Ready::write, deadline, interrupt)) return false;
    } else if (errno != EINTR) {
      throw StreamLost(describe_errno(errno));
    }
  }
  return true;
}

}  // namespace hvd::net
