// Proven streams between processes that are no ranks yet: the launchers of several nodes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <hvd/core/event_loop.hpp>
#include <hvd/core/fd.hpp>
#include <hvd/core/secret.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// Listens, and lets in who proves the secret of `identity` for its job and epoch; a stray
/// connection is dropped, and listening goes on. An empty secret proves nothing: on a Unix socket
/// the kernel still tells the user, on TCP everybody comes in.
class MeetingPoint {
 public:
  /// Called on the loop thread with a connected, non-blocking stream.
  using OnStream = std::function<void(UniqueFd)>;

  /// `address` as in address.hpp. `loop` outlives it. Throws Errc::resource naming the address when
  /// it is taken or not one of this machine's.
  MeetingPoint(EventLoop& loop, const std::string& address, const Identity& identity,
               OnStream on_stream);
  /// Nothing is called back afterwards.
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The other side: a connected, proven, non-blocking stream. Tries again until `deadline` while
/// nobody listens. Throws Errc::timeout; Errc::unauthenticated when they hold another secret;
/// Errc::protocol naming both when they are of another job, epoch or version. Blocks.
[[nodiscard]] UniqueFd go_to_meeting(const std::string& address, const Identity& identity,
                                     std::string_view label, Deadline deadline);

}  // namespace hvd
