#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <hvd/core/internal/delivery.hpp>

namespace hvd {

bool is_delivered(int stream) noexcept {
  int domain = 0;
  socklen_t size = sizeof domain;
  ::getsockopt(stream, SOL_SOCKET, SO_DOMAIN, &domain, &size);
  if (domain == AF_UNIX) return true;
  int unacknowledged = 0;
  return ::ioctl(stream, SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

}  // namespace hvd
