// Implements the commands of hvdtrace on the files of several ranks.
#pragma once

#include <string>
#include <vector>

namespace hvd::trace {

/// Makes one trace of all ranks, on one clock, with the earliest event of all at time 0. `out` is
/// replaced when all of it is written; it may be one of `files`. Throws TraceError, also when two
/// files are of the same rank.
void merge(const std::string& out, const std::vector<std::string>& files);

/// Returns a table of the time that each phase took, over all ranks. It has one line per phase (and
/// algorithm), the longest in total first, and then one line for each rank that dropped events.
/// Throws TraceError.
[[nodiscard]] std::string summarize(const std::vector<std::string>& files);

}  // namespace hvd::trace
