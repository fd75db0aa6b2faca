// Declares process sets. The ranks of a process set run operations of their own.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd {

/// `Context::add_process_set` makes a process set. It is a value that every rank holds, member or
/// not. The default one contains every rank.
struct ProcessSet {
  std::int32_t id = 0;
  std::vector<int> ranks{};  ///< in the context, ascending; empty for the set of every rank

  friend bool operator==(const ProcessSet&, const ProcessSet&) = default;
};

}  // namespace hvd
