// Wraps the system calls around sockets: listening, connecting, and identifying the other end.
#pragma once

#include <stdexcept>
#include <string>

#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/types.hpp>

#include "net/blocking_io.hpp"

namespace hvd::net {

/// Owns a listening, non-blocking socket. At the end it removes the path of a Unix socket.
class Listener {
 public:
  /// "@" asks for a fresh abstract name, and port 0 for a free port. Throws Errc::resource.
  explicit Listener(const Address& wanted);
  Listener(Listener&& other) noexcept = default;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// Returns the address to which clients connect.
  [[nodiscard]] const Address& address() const noexcept { return address_; }

 private:
  UniqueFd fd_;
  Address address_;
};

/// Reports that an attempt to connect failed, and that another one may succeed.
struct Unreachable : std::runtime_error {
  Unreachable(const std::string& cause, bool nobody_listens)
      : std::runtime_error(cause), refused(nobody_listens) {}
  bool refused;  ///< no server listens there
};

/// Returns a connected non-blocking stream. Throws Unreachable; Errc::resource when this process is
/// out of descriptors or memory; Errc::unauthenticated when a Unix socket belongs to another user;
/// Errc::aborted.
[[nodiscard]] UniqueFd connect_to(const Address& address, Deadline deadline,
                                  const Interrupt& interrupt);

/// Returns true unless `fd` is a Unix socket whose other end belongs to another user.
[[nodiscard]] bool peer_is_same_user(int fd) noexcept;
/// Sets TCP_NODELAY on a TCP stream. Does nothing on a Unix socket.
void tune_stream(int fd) noexcept;
/// Returns the system's text for an error, as "connection reset".
[[nodiscard]] std::string describe_errno(int error);

}  // namespace hvd::net
