// Declares the one exception type that public calls throw. docs/reference/errors.md is its
// contract.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

namespace hvd {

enum class Errc : std::uint8_t {
  invalid_argument,  ///< the caller's arguments; this rank only, nothing was submitted
  mismatch,          ///< ranks asked for different things under one name; on every rank
  duplicate_name,    ///< the name is still pending on this rank; this rank only
  not_initialized,   ///< no context: `hvd::init()` has not run, or `shutdown()` has
  shut_down,         ///< this rank, or a rank that the operation needs, has shut down
  peer_lost,         ///< a rank crashed, froze or became unreachable; the context has failed
  timeout,           ///< a deadline passed; the context has failed
  aborted,           ///< a rank called `abort()`; the context has failed
  protocol,          ///< bytes from outside that break the wire protocol, or another version
  unauthenticated,   ///< a peer does not hold the job's secret
  unsupported,       ///< no backend of this build can do that
  resource,          ///< the operating system refused memory, descriptors or sockets
  internal,          ///< a defect of this library
};
/// Returns the name of an error code, as "peer lost".
[[nodiscard]] std::string_view to_string(Errc code) noexcept;

/// Holds the facts about a failure, which are the same on every surviving rank.
struct Fault {
  int rank = -1;                         ///< culprit, -1 when no single rank is to blame
  std::string host;                      ///< its host, empty when unknown
  std::string cause;                     ///< "connection reset", "silent for 2.0 s", …
  std::string phase;                     ///< "init", "negotiation", "allreduce", "shutdown", …
  std::string tensor;                    ///< the operation it struck, empty when none
  std::chrono::milliseconds elapsed{0};  ///< since that operation, or the context, began
};

class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& message);
  /// Composes the message from the fault's fields.
  Error(Errc code, Fault fault);

  [[nodiscard]] Errc code() const noexcept { return code_; }
  [[nodiscard]] const Fault& fault() const noexcept { return fault_; }

 private:
  Errc code_;
  Fault fault_;
};

}  // namespace hvd
