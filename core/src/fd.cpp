#include <unistd.h>

#include <hvd/core/fd.hpp>

namespace hvd {

void UniqueFd::reset(int fd) noexcept {
  const int old = std::exchange(fd_, fd);
  // close() is not repeated on EINTR: on Linux the descriptor is gone in any case.
  if (old >= 0) ::close(old);
}

}  // namespace hvd
