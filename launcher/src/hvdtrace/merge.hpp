// hvdtrace merge: one trace of all ranks, on one clock.
#pragma once

#include <string>
#include <vector>

namespace hvd::trace {

/// The earliest event of all is at time 0. `out` is replaced when all of it is written; it may be
/// one of `files`. Throws TraceError, also when two files are of the same rank.
void merge(const std::string& out, const std::vector<std::string>& files);

}  // namespace hvd::trace
