// What ranks tell each other over the control channel. docs/protocol.md shows the encoding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/request.hpp>
#include <hvd/core/wire.hpp>

#include "coordinator/decision.hpp"

namespace hvd {

// To rank 0.
struct Submitted {
  std::vector<Request> requests;
};
struct Goodbye {};  ///< this rank has shut down
struct Suspicion {  ///< a collective failed here; `abort()` sends it with Errc::aborted
  Errc code = Errc::peer_lost;
  int rank = -1;
  std::string cause;
};

// From rank 0.
struct Schedule {
  std::vector<Decision> decisions;
};
struct Farewell {};  ///< every rank has said goodbye
struct Poison {      ///< the job has failed, for this reason
  Errc code = Errc::peer_lost;
  Fault fault;
};

// Both ways.
struct Heartbeat {};

using Message = std::variant<Submitted, Goodbye, Suspicion, Schedule, Farewell, Poison, Heartbeat>;

[[nodiscard]] Bytes encode(const Message& message);
/// Throws Errc::protocol. Never trusts a length.
[[nodiscard]] Message decode_message(std::span<const std::byte> bytes);

}  // namespace hvd
