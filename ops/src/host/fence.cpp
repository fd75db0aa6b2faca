#include "host/fence.hpp"

namespace hvd::detail {

bool HostFence::arrive_and_wait(std::uint64_t sequence, std::uint64_t digest,
                                std::span<const int> members) {
  bool all = false;
  shared_->failure.guard([&] { all = run({sequence, digest, members}); });
  return all;
}

void HostFence::settle(std::span<const std::uint64_t> reached) {
  settlements_.settle(reached);
  shared_->wait.wake();
}

void HostFence::abort() noexcept {
  shared_->failure.abort();
  shared_->wait.wake();
}

/// This rank arrives by storing its message of the current turn, with the sequence number and the
/// digest. Then it reads the messages of the other members, one after the other, until each has the
/// same number and digest.
bool HostFence::run(const Call& call) {
  static_cast<void>(
      position_in(call.members, shared_->rank, static_cast<int>(shared_->peers.size())));
  check_order(last_, call.sequence);
  if (settlements_.of(call.sequence, call.members) == FenceOutcome::cancelled) return false;
  last_ = call.sequence;
  if (call.members.size() == 1) return true;

  HostGroup& group = *shared_->group(call.members);
  group.arrive(call.sequence, call.digest);
  // All members must arrive, so it does not matter in which order they are waited for.
  for (int position = 0; position < group.size(); ++position) {
    if (!await_arrival(group, position, call)) return false;
  }
  group.pass_fence();
  return true;
}

/// Waits until the member has arrived. Returns false when the fence is cancelled.
bool HostFence::await_arrival(HostGroup& group, int position, const Call& call) {
  const auto arrived = [&](int of) { return group.has_arrived(of, call.sequence, call.digest); };
  const auto settled = [&] { return settlements_.mention(call.sequence); };
  try {
    // What was seen counts: a member that has learned earlier that the fence is cancelled may have
    // replaced its message since.
    bool came = false;
    group.wait_for(
        position, [&] { return (came = arrived(position)) || settled(); }, Deadline::max());
    if (came) return true;
    if (settlements_.of(call.sequence, call.members) == FenceOutcome::cancelled) return false;
    // Every member has arrived, or is about to arrive.
    group.wait_for(
        position, [&] { return arrived(position); }, Deadline::max());
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::peer_lost) throw;
    // A member that has arrived and is gone may have left because another one was lost. The error
    // names a member that is gone without having arrived, where there is one.
    for (int other = 0; other < group.size(); ++other) {
      const Neighbour& neighbour = group.member(other).neighbour;
      if (!arrived(other) && ShmWait::is_gone(neighbour)) {
        throw peer_lost(neighbour.rank, "closed its connection");
      }
    }
    throw;
  }
}

}  // namespace hvd::detail
