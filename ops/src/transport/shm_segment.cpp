#include "transport/shm_segment.hpp"

#include <new>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "transport/failure.hpp"

namespace hvd {

ShmSegment ShmSegment::create(const ShmLayout& layout, int owner) {
  ShmSegment segment(SealedMemory::create("hvd-rings", layout.size(), PeerAccess::write));
  std::byte* const memory = segment.memory_.data();
  new (memory) ShmHeader(layout.header(owner));
  new (memory + ShmLayout::doorbell()) ShmDoorbell;
  for (int sender = 0; sender < layout.ranks(); ++sender) {
    if (sender != owner) new (memory + layout.counters(owner, sender)) ShmCounters;
  }
  return segment;
}

ShmSegment ShmSegment::attach(UniqueFd fd, const ShmLayout& layout, int owner) {
  ShmSegment segment(SealedMemory::attach(std::move(fd), layout.size(), owner, PeerAccess::write));
  const std::string problem =
      layout.problem_with({segment.memory_.data(), segment.memory_.size()}, owner);
  if (!problem.empty()) {
    throw peer_violation(owner, fmt::format("shared memory refused: {}", problem));
  }
  return segment;
}

ShmDoorbell& ShmSegment::doorbell() const noexcept {
  return *std::launder(reinterpret_cast<ShmDoorbell*>(memory_.data() + ShmLayout::doorbell()));
}

ShmCounters& ShmSegment::counters(const ShmLayout& layout, int owner, int sender) const noexcept {
  return *std::launder(
      reinterpret_cast<ShmCounters*>(memory_.data() + layout.counters(owner, sender)));
}

std::span<std::byte> ShmSegment::data(const ShmLayout& layout, int owner,
                                      int sender) const noexcept {
  return {memory_.data() + layout.data(owner, sender), layout.capacity()};
}

}  // namespace hvd
