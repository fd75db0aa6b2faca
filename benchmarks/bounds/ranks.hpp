// Runs the ranks of one host as forked processes.
#pragma once

#include <chrono>
#include <functional>

namespace hvd::bounds {

/// Forks `count` processes, each of which exits with the status that `program(rank)` returns, and
/// waits for them. Returns 0 when all returned 0. Otherwise it returns the first other status,
/// after the rest were killed; 128 + N when a signal ended a rank or asked for the end (SIGINT,
/// SIGTERM, SIGHUP); or 124 when `patience` has passed. No process is left, and none survives this
/// process. The calling process must have only one thread.
[[nodiscard]] int run_ranks(int count, std::chrono::seconds patience,
                            const std::function<int(int rank)>& program);

}  // namespace hvd::bounds
