// Descriptors over a Unix stream (SCM_RIGHTS).
#pragma once

#include <hvd/core/fd.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// Both throw Errc::timeout or Errc::peer_lost naming `peer`, the rank at the other end.
void send_descriptor(int stream, int fd, int peer, Deadline deadline);
/// Takes exactly one descriptor; anything else that came is closed and Errc::protocol. One for
/// which this process has no room is Errc::resource.
[[nodiscard]] UniqueFd receive_descriptor(int stream, int peer, Deadline deadline);

}  // namespace hvd
