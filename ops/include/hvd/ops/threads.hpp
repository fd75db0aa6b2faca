// Runs the ranks of a job as threads of one process.
#pragma once

#include <functional>

#include <hvd/core/config.hpp>
#include <hvd/core/context.hpp>

namespace hvd {

/// Runs `body` as each rank of a job of `size` ranks, which are new threads of this process, and
/// waits until all have ended. Each gets a context of its own, which `hvd::context()` returns on
/// its thread. A thread that a body starts has none, and is to be given the body's. The job is
/// independent of the process's default context and of other calls of `threads`, which may run at
/// the same time, also in a body. Of `config`, only the settings are used, not what it says about
/// ranks, a launcher and a rendezvous. Any thread may call it. docs/how-to/ranks_as_threads.md says
/// what the ranks share.
///
/// When a body throws, its context aborts, so that collectives of the other ranks throw
/// Errc::aborted. A rank that waits for another by other means than `hvd` is not woken. After all
/// have ended, `threads` throws the exception that was thrown first. Throws Errc::invalid_argument
/// when `size` is below 1 or `body` is empty, and Errc::resource when a thread cannot be started.
void threads(int size, const std::function<void(Context&)>& body,
             const Config& config = Config::settings_from_environment());

namespace detail {

/// Is called on the thread that calls `threads`, with the number of ranks. Each rank's thread calls
/// the result before its body. The result is destroyed on the first thread when all have ended.
using PrepareRanks = std::function<void()> (*)(int ranks);

/// Provides the function for the whole process. <hvd/torch.hpp> calls it before `main`. Any thread
/// may call it. Returns true.
bool provide_rank_preparation(PrepareRanks prepare) noexcept;

}  // namespace detail
}  // namespace hvd
