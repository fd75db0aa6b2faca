#include "host/group.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

namespace hvd {

static_assert(HostGroup::kSmall <= HostMessage::kLong);

HostGroup::HostGroup(std::vector<HostMember> members, int self, HostWaiting& waiting)
    : members_(std::move(members)), self_(self), waiting_(waiting), copied_(members_.size()) {
  for (int position = 0; position < size(); ++position) {
    other_index_.push_back(others_.size());
    if (position != self) others_.push_back(member(position).neighbour);
  }
}

HostControl& HostGroup::control(int position) const noexcept {
  return *std::launder(reinterpret_cast<HostControl*>(member(position).block));
}

HostWaiting::For HostGroup::waiting_for(int position, Deadline deadline) const noexcept {
  return {others_, &others_[other_index_[static_cast<std::size_t>(position)]], deadline};
}

std::byte* HostGroup::outbox(std::size_t bytes) noexcept { return message(self_).room(bytes); }

void HostGroup::post(std::uint64_t what, std::uint64_t detail) noexcept {
  HostMessage& own = message(self_);
  own.what = what ^ ticket_;
  own.detail = detail;
  own.tag.store(tag(), std::memory_order_release);
  unheard_ = true;
}

std::uint64_t HostGroup::hear(int position, std::uint64_t what, Deadline deadline) {
  const HostMessage& heard = message(position);
  if (position != self_) {
    waiting_.until([&] { return heard.tag.load(std::memory_order_acquire) == tag(); },
                   waiting_for(position, deadline));
    if (heard.what != (what ^ ticket_)) {
      throw peer_violation(member(position).neighbour.rank, "came with another operation");
    }
  }
  return heard.detail;
}

void HostGroup::end_operation() noexcept {
  if (std::exchange(unheard_, false)) HostWaiting::ring(others_);
}

void HostGroup::meet(std::uint64_t what, Deadline deadline) {
  post(what);
  for (int position = 0; position < size(); ++position) hear(position, what, deadline);
  end_turn();
}

std::byte* HostGroup::at(int position, std::uint64_t offset, std::size_t bytes) const {
  const HostMember& of = member(position);
  if (offset < of.begin || offset > of.size || bytes > of.size - offset) {
    throw peer_violation(of.neighbour.rank, "points outside its arena");
  }
  return of.segment + offset;
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

void HostGroup::tell_copied(std::uint64_t chunks) noexcept {
  control(self_).progress.copied.store(chunks, std::memory_order_release);
  unheard_ = true;
}

void HostGroup::tell_reduced(std::uint64_t chunks) noexcept {
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
  waiting_.until([&] { return copied.load(std::memory_order_acquire) >= chunks; },
                 waiting_for(position, deadline));
}

void HostGroup::wait_reduced(int position, std::uint64_t chunks, Deadline deadline) {
  const std::atomic<std::uint64_t>& reduced = control(position).progress.reduced;
  waiting_.until([&] { return reduced.load(std::memory_order_acquire) >= chunks; },
                 waiting_for(position, deadline));
}

}  // namespace hvd
