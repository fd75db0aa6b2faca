// hvdtrace summary: how much time each phase took, over all ranks.
#pragma once

#include <string>
#include <vector>

namespace hvd::trace {

/// A table with one line per phase (and algorithm), the longest in total first, then one line for
/// each rank that dropped events. Throws TraceError.
[[nodiscard]] std::string summarize(const std::vector<std::string>& files);

}  // namespace hvd::trace
