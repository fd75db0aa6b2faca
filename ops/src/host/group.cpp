#include "host/group.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "transport/failure.hpp"

namespace hvd::detail {

static_assert(HostGroup::kSmall <= HostMessage::kLong);

Error no_memory_for_set(int rank) {
  Fault fault;
  fault.rank = rank;
  fault.cause = fmt::format(
      "no shared memory for a process set: each takes {} KiB on each of its ranks, which may have "
      "been in at most {} different ones, with those that were removed and pairs that exchange "
      "messages. Use fewer process sets, allow the job more memory, or set HVD_TRANSPORT=tcp",
      HostSlots::block_size() >> 10, HostSets::kMost);
  return {Errc::resource, std::move(fault)};
}

HostGroup::HostGroup(std::vector<HostMember> members, int self, ShmWait& wait, std::uint64_t name)
    : members_(std::move(members)),
      self_(self),
      wait_(wait),
      name_(name),
      copied_(members_.size()) {
  for (int position = 0; position < size(); ++position) {
    other_index_.push_back(others_.size());
    if (position != self) others_.push_back(member(position).neighbour);
  }
}

void HostGroup::attach(Deadline deadline) {
  wait_.ring(others_);  // this rank has published its own block
  for (int position = 0; position < size(); ++position) {
    HostMember& member = members_[static_cast<std::size_t>(position)];
    if (position != self_)
      wait_for(
          position, [&] { return attach(member); }, deadline);
  }
}

bool HostGroup::attach(HostMember& member) const {
  if (member.block != nullptr) return true;
  const HostSets& sets = member.segment->sets();
  for (std::size_t i = 0; i < HostSets::kMost; ++i) {
    const std::uint64_t found = sets.names[i].load(std::memory_order_acquire);
    if (found == 0) break;
    if (found != name_) continue;
    member.block = member.segment->data() + HostSegment::block(i + 1);
    return true;
  }
  if (sets.refused.load(std::memory_order_relaxed) == name_) {
    throw no_memory_for_set(member.neighbour.rank);
  }
  return false;
}

HostControl& HostGroup::control(int position) const noexcept {
  return *std::launder(reinterpret_cast<HostControl*>(member(position).block));
}

std::byte* HostGroup::outgoing(std::size_t bytes) noexcept { return message(self_).room(bytes); }

void HostGroup::store(std::uint64_t number, std::uint64_t operation,
                      std::uint64_t detail) noexcept {
  HostMessage& own = message(self_);
  // After a fence that was cancelled the message of this turn is stored again. A member that still
  // waits at that fence must not find its number beside another operation: see `has_arrived`.
  if (published_) own.number.store(0, std::memory_order_relaxed);
  own.operation.store(operation, std::memory_order_release);
  own.detail = detail;
  own.number.store(number, std::memory_order_release);
  published_ = true;
  unheard_ = true;
}

void HostGroup::publish(std::uint64_t operation, std::uint64_t detail) noexcept {
  if (!fenced_) store(2 * turn_, operation, detail);
}

std::uint64_t HostGroup::await(int position, std::uint64_t operation, Deadline deadline) {
  const HostMessage& theirs = message(position);
  if (position == self_ || fenced_) return theirs.detail;
  wait_for(
      position, [&] { return theirs.number.load(std::memory_order_acquire) == 2 * turn_; },
      deadline);
  if (theirs.operation.load(std::memory_order_relaxed) != operation) {
    throw peer_violation(member(position).neighbour.rank, "came with another operation");
  }
  return theirs.detail;
}

void HostGroup::barrier(std::uint64_t operation, Deadline deadline) {
  publish(operation);
  for (int position = 0; position < size(); ++position) await(position, operation, deadline);
  end_turn();
}

void HostGroup::arrive(std::uint64_t sequence, std::uint64_t digest) noexcept {
  if (prepared_.sequence != sequence) drop_prepared();
  store(2 * sequence + 1, digest, prepared_.detail);
}

bool HostGroup::has_arrived(int position, std::uint64_t sequence, std::uint64_t digest) {
  if (position == self_) return true;
  HostMember& member = members_[static_cast<std::size_t>(position)];
  if (!attach(member)) return false;
  const HostMessage& theirs = message(position);
  const std::uint64_t wanted = 2 * sequence + 1;
  if (theirs.number.load(std::memory_order_acquire) != wanted) return false;
  if (theirs.operation.load(std::memory_order_acquire) == digest) return true;
  // The member may have replaced the message in between, because the fence is cancelled.
  if (theirs.number.load(std::memory_order_relaxed) != wanted) return false;
  throw peer_violation(member.neighbour.rank, "came with another operation");
}

void HostGroup::pass_fence() noexcept {
  if (std::exchange(prepared_, {}).sequence != 0) {
    fenced_ = true;
    return;
  }
  end_turn();
  wake_others();
}

void HostGroup::wake_others() noexcept {
  if (std::exchange(unheard_, false)) wait_.ring(others_);
}

std::byte* HostGroup::at(int position, std::uint64_t offset, std::size_t bytes) const {
  const HostMember& of = member(position);
  const std::size_t size = of.segment->size();
  if (offset < HostSegment::arena_begin() || offset > size || bytes > size - offset) {
    throw peer_violation(of.neighbour.rank, "points outside its arena");
  }
  return of.segment->data() + offset;
}

bool HostGroup::is_free(std::uint64_t chunk) noexcept {
  if (chunk < free_) return true;
  for (int position = 0; position < size(); ++position) {
    const std::atomic<std::uint64_t>& reduced = control(position).progress.reduced;
    if (position != self_ &&
        reduced.load(std::memory_order_acquire) < chunk + 1 - HostSlots::kDepth) {
      return false;
    }
  }
  free_ = chunk + 1;
  return true;
}

void HostGroup::wait_free(std::uint64_t chunk, Deadline deadline) {
  if (chunk < free_) return;
  for (int position = 0; position < size(); ++position) {
    if (position != self_) wait_reduced(position, chunk + 1 - HostSlots::kDepth, deadline);
  }
  free_ = chunk + 1;
}

void HostGroup::publish_copied(std::uint64_t chunks) noexcept {
  control(self_).progress.copied.store(chunks, std::memory_order_release);
  unheard_ = true;
}

void HostGroup::publish_reduced(std::uint64_t chunks) noexcept {
  control(self_).progress.reduced.store(chunks, std::memory_order_release);
  unheard_ = true;
}

void HostGroup::note_copied(int position, std::uint64_t chunks) noexcept {
  std::uint64_t& copied = copied_[static_cast<std::size_t>(position)];
  copied = std::max(copied, chunks);
}

void HostGroup::wait_copied(int position, std::uint64_t chunks, Deadline deadline) {
  if (copied_[static_cast<std::size_t>(position)] >= chunks) return;
  const std::atomic<std::uint64_t>& copied = control(position).progress.copied;
  wait_for(
      position, [&] { return copied.load(std::memory_order_acquire) >= chunks; }, deadline);
}

void HostGroup::wait_reduced(int position, std::uint64_t chunks, Deadline deadline) {
  const std::atomic<std::uint64_t>& reduced = control(position).progress.reduced;
  wait_for(
      position, [&] { return reduced.load(std::memory_order_acquire) >= chunks; }, deadline);
}

}  // namespace hvd::detail
