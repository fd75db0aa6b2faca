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

/// An operation that a rank is ready for.
struct Announcement {
  Request request;
  /// Grows on this rank whenever a result was seen before the next operation was submitted. What
  /// has the same number on every rank does not depend on each other's results.
  std::uint32_t segment = 0;

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

// To rank 0. An epoch is the number of times that the sender has frozen or thawed: what was said in
// another epoch is said again, so rank 0 drops it.
struct Submitted {
  std::uint32_t epoch = 0;
  std::vector<Announcement> operations;
};
struct Goodbye {  ///< this rank has shut down
  std::uint32_t epoch = 0;
};
struct Suspicion {  ///< a collective failed here; `abort()` sends it with Errc::aborted
  Errc code = Errc::peer_lost;
  int rank = -1;
  std::string cause;
};
struct ThawRequest {  ///< something happened here that the frozen schedule has not
  std::uint32_t epoch = 0;
};
struct Stopped {  ///< the answer to Thaw: no further than this ticket
  std::uint32_t epoch = 0;
  std::uint64_t ticket = 0;  ///< the last one begun; 0: none
};

// To the next rank on the way to rank 0.
struct Lost {     ///< of this rank nothing comes any more
  int rank = -1;  ///< from a relay: a member of it, or the relay; else whom it is said to
  std::string cause;
};

// From rank 0.
struct Schedule {
  std::vector<Decision> decisions;
};
struct Thaw {  ///< begin nothing more
  std::uint32_t epoch = 0;
};
struct Resume {  ///< negotiate again
  std::uint32_t epoch = 0;
  /// By rank: the last ticket begun. A batch whose members have all begun it is finished; others
  /// are taken back and announced again.
  std::vector<std::uint64_t> begun;
};
struct Farewell {};  ///< every rank has said goodbye
struct Poison {      ///< the job has failed, for this reason; also from a relay, without rank 0
  Errc code = Errc::peer_lost;
  Fault fault;
};

// Between neighbours, both ways.
struct Heartbeat {};

using Message = std::variant<Submitted, Goodbye, Suspicion, Schedule, Farewell, Poison, Heartbeat,
                             ThawRequest, Stopped, Thaw, Resume, Lost>;

[[nodiscard]] Bytes encode(const Message& message);
/// Throws Errc::protocol. Never trusts a length.
[[nodiscard]] Message decode_message(std::span<const std::byte> bytes);

/// Whether an encoded message is about what runs next; heartbeats and the ends of things are not.
[[nodiscard]] bool is_negotiation(std::span<const std::byte> bytes) noexcept;

/// The canonical encoding of a plan.
[[nodiscard]] Bytes encode(const Plan& plan);

}  // namespace hvd
