// Where gradients lie, and what it took.
#pragma once

#include <cstdint>

namespace hvd {

/// For gradients on the CPU, in a job whose ranks share an arena (`Context::arena`); all others are
/// reduced where autograd puts them.
enum class GradientMemory {
  /// Autograd's results are allocated in the arena, so that nothing is copied before or after the
  /// reduction. Replaces LibTorch's CPU allocator, for the rest of the process, by one that leaves
  /// everything else to it.
  born_shared,
  /// Copied into the arena when autograd has accumulated them: one copy. With `zero_grad(false)`
  /// they stay there, and nothing is copied again.
  copied_shared,
  /// Reduced where autograd puts them: the engine copies them in and out.
  as_is,
};

/// Of one optimizer, since its construction.
struct GradientCounters {
  std::uint64_t in_place = 0;  ///< reduced where autograd put them
  std::uint64_t copied = 0;    ///< copied before the reduction; there is never a copy after it
  std::uint64_t copied_bytes = 0;
};

}  // namespace hvd
