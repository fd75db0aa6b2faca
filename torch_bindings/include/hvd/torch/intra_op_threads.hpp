// Divides LibTorch's intra-op threads among ranks that are threads of one process.
#pragma once

#include <functional>

#include <hvd/ops/threads.hpp>

namespace hvd::detail {

/// Each thread that calls the result gets an equal share of the calling thread's intra-op threads,
/// at least one. When the result is destroyed, the calling thread has its own again.
[[nodiscard]] std::function<void()> share_intra_op_threads(int ranks);

/// Makes `threads` do so in a program that includes this header.
inline const bool kIntraOpThreadsAreShared = provide_rank_preparation(&share_intra_op_threads);

}  // namespace hvd::detail
