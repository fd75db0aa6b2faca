// Provides authenticated streams between processes that are not ranks: the launchers of several
// nodes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// Listens, and accepts streams whose peer proves the secret of `identity` for its job and epoch.
/// Other connections are dropped. An empty secret proves nothing: a Unix socket then accepts
/// processes of the same user, whom the kernel identifies, and a TCP port accepts everybody.
class AuthenticatedListener {
 public:
  /// The loop thread calls it with a connected, non-blocking stream.
  using OnStream = std::function<void(UniqueFd)>;

  /// `address` is a text as in address.hpp. `loop` outlives this object. Throws Errc::resource
  /// naming the address when it is in use or not an address of this machine.
  AuthenticatedListener(EventLoop& loop, const std::string& address, const Identity& identity,
                        OnStream on_stream);
  /// Stops listening. `on_stream` is not called afterwards.
  ~AuthenticatedListener();
  AuthenticatedListener(const AuthenticatedListener&) = delete;
  AuthenticatedListener& operator=(const AuthenticatedListener&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Connects to an `AuthenticatedListener` and returns a non-blocking stream. Blocks, and tries
/// again until `deadline` while nobody listens. Throws Errc::timeout; Errc::unauthenticated when
/// the listener has another secret; Errc::protocol naming both sides when it is of another job,
/// epoch or version.
[[nodiscard]] UniqueFd connect_authenticated(const std::string& address, const Identity& identity,
                                             std::string_view label, Deadline deadline);

}  // namespace hvd
