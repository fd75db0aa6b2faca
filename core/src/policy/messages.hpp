// Declares the messages that ranks send over the control channel. docs/internals/protocol.md shows
// the encoding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/wire.hpp>
#include <hvd/core/request.hpp>

#include "policy/decision.hpp"
#include "policy/straggler.hpp"

namespace hvd::detail {

/// Describes an operation that a rank is ready for.
struct Announcement {
  Request request;
  /// Grows on this rank whenever a result was seen before the next operation was submitted.
  /// Operations with the same number on every rank do not depend on each other's results.
  std::uint32_t segment = 0;

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

// These messages go to rank 0. An epoch is the number of times that the sender has frozen or
// thawed. Rank 0 drops a message of another epoch, since its sender sends it again.
struct Submitted {
  std::uint32_t epoch = 0;
  std::vector<Announcement> operations;
};
struct ShutdownRequested {  ///< the sender submits nothing more
  std::uint32_t epoch = 0;
};
struct Suspicion {  ///< a collective failed on the sender; `abort()` sends it with Errc::aborted
  Errc code = Errc::peer_lost;
  int rank = -1;
  std::string cause;
};
struct ThawRequest {  ///< something happened on the sender that the frozen schedule does not hold
  std::uint32_t epoch = 0;
};
struct Stopped {  ///< answers Thaw: the sender begins nothing after this sequence number
  std::uint32_t epoch = 0;
  std::uint64_t sequence = 0;  ///< the last one begun; 0 means none
};

// This message goes to the next rank on the way to rank 0.
struct PeerLost {  ///< no message arrives from this rank any more
  int rank = -1;   ///< from a relay: one of its members or itself; from a member: the receiver
  std::string cause;
};

// These messages come from rank 0.
struct Schedule {
  std::vector<Decision> decisions;
};
struct Thaw {  ///< the receiver begins nothing more of the plan
  std::uint32_t epoch = 0;
};
struct Resume {  ///< the receiver negotiates again
  std::uint32_t epoch = 0;
  /// By rank, the last sequence number begun. A batch that all its members have begun is finished;
  /// the others are taken back and announced again.
  std::vector<std::uint64_t> begun;
};
struct ShutdownAcknowledged {};  ///< every rank has requested the shutdown
struct Abort {  ///< the job has failed for this reason; a relay that loses rank 0 sends it too
  Errc code = Errc::peer_lost;
  Fault fault;
};

// This message goes between neighbours, in both directions.
struct Heartbeat {
  BlockedTimes times{};  ///< to the next rank on the way to rank 0: of the sender and its members
  Slowest slowest{};     ///< from there: what rank 0 has found
};

using Message =
    std::variant<Submitted, ShutdownRequested, Suspicion, Schedule, ShutdownAcknowledged, Abort,
                 Heartbeat, ThawRequest, Stopped, Thaw, Resume, PeerLost>;

[[nodiscard]] Bytes encode(const Message& message);
/// Decodes a message without trusting any length. Throws Errc::protocol.
[[nodiscard]] Message decode_message(std::span<const std::byte> bytes);

/// Tells whether an encoded message is part of a negotiation, so that another will follow soon.
[[nodiscard]] bool is_negotiation(std::span<const std::byte> bytes) noexcept;

/// Returns the canonical encoding of a plan.
[[nodiscard]] Bytes encode(const FrozenSchedule& plan);

}  // namespace hvd::detail
