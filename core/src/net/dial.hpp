// Opens the client's side of a stream: connects, proves the secret, and tries again while nobody
// listens yet.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/core/types.hpp>

#include "net/blocking_io.hpp"

namespace hvd::net {

struct DialOptions {
  Address address;
  int peer = -1;     ///< rank that must answer; -1 for the launcher, `kAnyRank` for any server
  std::string host;  ///< of the peer, for errors
  std::string label;
  Deadline deadline;
  /// The time for which a refused connection is tried again. After it the peer counts as lost.
  std::chrono::milliseconds refusal_patience = std::chrono::hours(24);
};

/// Returns a connected, authenticated, non-blocking stream. Blocks, so the loop thread must not
/// call it. Throws Errc::timeout, peer_lost, unauthenticated, protocol, resource or aborted; the
/// first two with the peer's rank and host.
[[nodiscard]] UniqueFd dial(const DialOptions& options, const Identity& self,
                            const Interrupt& interrupt);

}  // namespace hvd::net
