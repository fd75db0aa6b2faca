#include "transport/poll_wait.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include <hvd/core/error.hpp>

namespace hvd {

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

}  // namespace hvd
