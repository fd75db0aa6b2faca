#include "policy/frozen_schedule.hpp"

#include <algorithm>

#include "policy/messages.hpp"

namespace hvd::detail {

std::uint64_t digest_of(const FrozenSchedule& plan) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : encode(plan)) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

int member_index(int rank, const PlannedBatch& batch) noexcept {
  if (batch.members.empty()) return rank;
  const auto at = std::lower_bound(batch.members.begin(), batch.members.end(), rank);
  if (at == batch.members.end() || *at != rank) return -1;
  return static_cast<int>(at - batch.members.begin());
}

}  // namespace hvd::detail
