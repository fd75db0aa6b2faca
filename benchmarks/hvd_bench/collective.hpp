// One collective at one size: what an iteration does, and whether its result is right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <hvd/hvd.hpp>

#include "options.hpp"

namespace hvd::bench {

class Collective {
 public:
  virtual ~Collective() = default;
  /// Iteration `index`, in the slot that is its turn; returns when it is complete on this rank.
  virtual void run(std::size_t index) = 0;
  /// One run with known data; the number of wrong elements on this rank.
  [[nodiscard]] virtual std::int64_t check() = 0;
};

/// What nccl-tests prints of a size: allgather's is the whole output, its count one rank's part.
struct Extent {
  std::size_t bytes = 0;
  std::int64_t count = 0;
};

/// The nearest extent that is at least one element for every rank.
[[nodiscard]] Extent extent_of(const Options& options, std::size_t bytes, int ranks);
/// busbw / algbw: what the busiest link carries for every byte of the size, after nccl-tests'
/// PERFORMANCE.md.
[[nodiscard]] double bus_factor(OpKind kind, int ranks);

/// Collective, with Options::engine.
[[nodiscard]] std::unique_ptr<Collective> make_collective(Context& context, const Options& options,
                                                          const Extent& extent);

}  // namespace hvd::bench
