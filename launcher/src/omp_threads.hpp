// How many threads OpenMP has in a rank whose user did not say.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

/// What `OMP_NUM_THREADS` becomes for each of `local_size` ranks of this host: its usable cores
/// shared out, at least 1.
[[nodiscard]] int omp_threads(int local_size);

/// Pure. What is said about that, without an end of line; empty where nothing was chosen. `chosen`
/// by host; 0: there the user has said.
[[nodiscard]] std::string omp_notice(const std::vector<int>& chosen);

}  // namespace hvd::launcher
