#include "base/launcher_socket.hpp"

#include <sys/socket.h>
#include <unistd.h>

namespace hvd::detail {
namespace {

template <class T>
bool socket_option(int fd, int option, T& value) noexcept {
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 && size == sizeof value;
}

}  // namespace

bool is_launcher_socket(int fd) noexcept {
  int domain = 0;
  int type = 0;
  ucred peer{};
  return socket_option(fd, SO_DOMAIN, domain) && domain == AF_UNIX &&
         socket_option(fd, SO_TYPE, type) && type == SOCK_SEQPACKET &&
         socket_option(fd, SO_PEERCRED, peer) && peer.uid == ::getuid();
}

}  // namespace hvd::detail
