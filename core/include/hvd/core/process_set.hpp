// Some of the ranks of a context, which run operations of their own.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd {

/// Made by `Context::add_process_set`; a value that every rank holds, member or not. The default is
/// every rank.
struct ProcessSet {
  std::int32_t id = 0;
  std::vector<int> ranks{};  ///< in the context, ascending; empty for the set of every rank

  friend bool operator==(const ProcessSet&, const ProcessSet&) = default;
};

}  // namespace hvd
