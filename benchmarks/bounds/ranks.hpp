// Runs the ranks of one host as forked processes.
#pragma once

#include <chrono>
#include <functional>

namespace hvd::bounds {

/// Forks `count` processes, each of which returns what `program(rank)` does as its exit status, and
/// waits for them. 0 when all returned 0; otherwise the first other status, after the rest were
/// killed; 128 + N when a signal ended a rank or asked for the end (SIGINT, SIGTERM, SIGHUP); 124
/// when `patience` is over. Nobody is left, nor survives this process. The caller has no threads.
[[nodiscard]] int run_ranks(int count, std::chrono::seconds patience,
                            const std::function<int(int rank)>& program);

}  // namespace hvd::bounds
