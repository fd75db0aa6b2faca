// Declares process sets. The ranks of a process set run operations of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace hvd {

/// `Context::add_process_set` makes a process set. It is a value that every rank holds, member or
/// not. The default one contains every rank.
struct ProcessSet {
  std::int32_t id = 0;
  std::vector<int> ranks{};  ///< in the context, ascending; empty for the set of every rank

  friend bool operator==(const ProcessSet&, const ProcessSet&) = default;
};

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
