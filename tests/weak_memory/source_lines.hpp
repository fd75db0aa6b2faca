// Finds the lines of the source that the sites of an exploration come from.
#pragma once

#include <map>
#include <string>

#include "explorer.hpp"

namespace hvd::weak {

/// Returns for each site its file, below the sources of a room, and its line, as in
/// "host/group.cpp:77". Asks addr2line, which comes with the compiler.
[[nodiscard]] std::map<const void*, std::string> lines_of(const Sites& sites);

}  // namespace hvd::weak
