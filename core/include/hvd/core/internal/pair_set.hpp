// Names the process sets in which point-to-point messages are ordered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <hvd/core/process_set.hpp>

namespace hvd {

/// Returns the process set for point-to-point messages from rank `from` to rank `to` of a context
/// of `size` ranks. Such a pair set need not be added and is never removed. Its id is negative. The
/// opposite direction has another id, so that each direction has its own order and names.
[[nodiscard]] inline ProcessSet pair_set(int from, int to, int size) {
  return {static_cast<std::int32_t>(-1 - (static_cast<std::int64_t>(from) * size + to)),
          {std::min(from, to), std::max(from, to)}};
}

/// Returns the members of the pair set with this id, or nothing when there is no such set.
[[nodiscard]] inline std::optional<std::vector<int>> pair_members(std::int32_t id, int size) {
  const std::int64_t index = -1 - static_cast<std::int64_t>(id);
  if (index < 0 || index >= static_cast<std::int64_t>(size) * size) return std::nullopt;
  const auto from = static_cast<int>(index / size);
  const auto to = static_cast<int>(index % size);
  if (from == to) return std::nullopt;
  return pair_set(from, to, size).ranks;
}

}  // namespace hvd
