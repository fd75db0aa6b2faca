#include "transport/fd_passing.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>

#include "transport/failure.hpp"
#include "transport/poll_wait.hpp"

namespace hvd {
namespace {

/// Room for a few more than the one expected, so that they can be seen and closed.
constexpr std::size_t kRoom = CMSG_SPACE(4 * sizeof(int));

void wait_for(int stream, short events, int peer, Deadline deadline) {
  std::array<pollfd, 1> fds{pollfd{.fd = stream, .events = events, .revents = 0}};
  if (!poll_until(fds, deadline)) throw peer_timeout(peer, "does not pass its shared memory");
}

}  // namespace

void send_descriptor(int stream, int fd, int peer, Deadline deadline) {
  std::byte token{1};
  iovec data{.iov_base = &token, .iov_len = 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  while (::sendmsg(stream, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) throw peer_lost(peer, std::strerror(errno));
    wait_for(stream, POLLOUT, peer, deadline);
  }
}

UniqueFd receive_descriptor(int stream, int peer, Deadline deadline) {
  std::byte token{};
  iovec data{.iov_base = &token, .iov_len = 1};
  alignas(cmsghdr) std::array<std::byte, kRoom> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  ssize_t got = -1;
  for (;;) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    got = ::recvmsg(stream, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got >= 0) break;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) throw peer_lost(peer, std::strerror(errno));
    wait_for(stream, POLLIN, peer, deadline);
  }
  if (got == 0) throw peer_lost(peer, "closed the connection");

  UniqueFd first;
  int count = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < fds; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      UniqueFd taken(fd);
      if (count++ == 0) first = std::move(taken);
    }
  }
  // One that came finds no room here: the kernel cuts it off.
  if (count == 0 && (message.msg_flags & MSG_CTRUNC) != 0) {
    throw Error(Errc::resource,
                fmt::format("no descriptor left for the shared memory of rank {}", peer));
  }
  if (count != 1) throw peer_violation(peer, "passed " + std::to_string(count) + " descriptors");
  return first;
}

}  // namespace hvd
