// Declares the fence at which ranks agree, without a coordinator, that all of them have reached an
// operation.
#pragma once

#include <cstdint>
#include <span>

#include <hvd/core/error.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// The fence precedes the data of an operation that was not negotiated. A rank publishes that it
/// has arrived, and touches no data before all members have arrived. If a member never arrives,
/// nothing was sent to it, and the others can cancel the operation.
///
/// One thread at a time calls `arrive_and_wait`. After it has thrown once, it always throws.
class ReadyFence {
 public:
  virtual ~ReadyFence() = default;

  /// Publishes to `members` (ascending, this rank among them) that this rank has arrived at the
  /// operation with the number `sequence`, and waits until all of them have arrived there. `digest`
  /// describes the operation: when a member has arrived with another digest, it throws
  /// Errc::protocol naming that member. Sequence numbers are positive and grow from call to call;
  /// members may have skipped numbers of operations of which this rank was a member. Returns false
  /// only where `settle` has said that some member never arrives. It has no deadline, because a
  /// member may be busy for minutes. Throws peer_lost naming the rank, and aborted.
  [[nodiscard]] virtual bool arrive_and_wait(std::uint64_t sequence, std::uint64_t digest,
                                             std::span<const int> members) = 0;
  /// Reports how far every rank gets with the operations up to the highest number in `reached`:
  /// rank r has arrived, or will still arrive, at its operations up to reached[r] (0: none), and at
  /// none of the later ones among them. All ranks therefore decide alike, whenever the report
  /// reaches them: where some member does not reach an operation `arrive_and_wait` soon returns
  /// false, and where all do it waits for them. Every rank calls this before it arrives at a later
  /// operation. Any thread may call it. Does not block.
  virtual void settle(std::span<const std::uint64_t> reached) = 0;
  /// Makes a running `arrive_and_wait` and every later one throw Errc::aborted soon. Any thread may
  /// call it. Does not block.
  virtual void abort() noexcept = 0;
};

}  // namespace hvd
