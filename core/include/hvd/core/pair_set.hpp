// The process set that a message from one rank to another belongs to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <hvd/core/process_set.hpp>

namespace hvd {

/// Sender and receiver among `size` ranks, two different ones. Such a set need not be added and is
/// never removed; its id is negative, and another one from b to a, so that each direction has an
/// order and names of its own.
[[nodiscard]] inline ProcessSet pair_set(int from, int to, int size) {
  return {static_cast<std::int32_t>(-1 - (static_cast<std::int64_t>(from) * size + to)),
          {std::min(from, to), std::max(from, to)}};
}

/// The members of the pair set with this id; nothing when there is none.
[[nodiscard]] inline std::optional<std::vector<int>> pair_members(std::int32_t id, int size) {
  const std::int64_t index = -1 - static_cast<std::int64_t>(id);
  if (index < 0 || index >= static_cast<std::int64_t>(size) * size) return std::nullopt;
  const auto from = static_cast<int>(index / size);
  const auto to = static_cast<int>(index % size);
  if (from == to) return std::nullopt;
  return pair_set(from, to, size).ranks;
}

}  // namespace hvd
