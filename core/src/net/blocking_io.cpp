#include "net/blocking_io.hpp"

#include <array>
#include <cerrno>

#include <sys/socket.h>

#include <hvd/core/error.hpp>

#include "net/socket.hpp"

namespace hvd::net {
namespace {

void throw_if_raised(const pollfd& interrupt) {
  if (interrupt.revents != 0) throw Error(Errc::aborted, "aborted while connecting");
}

}  // namespace

bool wait_ready(int fd, Ready what, Deadline deadline, const Interrupt& interrupt) {
  const auto events = static_cast<short>(what == Ready::read ? POLLIN : POLLOUT);
  std::array<pollfd, 2> fds{interrupt.interest(), {fd, events, 0}};
  const bool ready = poll_until(fds, deadline);
  throw_if_raised(fds[0]);
  return ready;
}

void pause_until(Deadline deadline, const Interrupt& interrupt) {
  std::array<pollfd, 1> fds{interrupt.interest()};
  if (poll_until(fds, deadline)) throw_if_raised(fds[0]);
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
