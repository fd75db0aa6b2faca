// Runs one collective at one size and checks its result.
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
  /// Runs iteration `index` in the slot of that iteration. Returns when it is complete on this
  /// rank.
  virtual void run(std::size_t index) = 0;
  /// Runs once with known data and returns the number of wrong elements on this rank.
  [[nodiscard]] virtual std::int64_t check() = 0;
};

/// The size and count that nccl-tests prints. For allgather the size is the whole output and the
/// count one rank's part.
struct Extent {
  std::size_t bytes = 0;
  std::int64_t count = 0;
};

/// Returns the nearest extent with at least one element for every rank.
[[nodiscard]] Extent extent_of(const Options& options, std::size_t bytes, int ranks);
/// Returns busbw / algbw: the bytes on the busiest link for every byte of the size (nccl-tests,
/// PERFORMANCE.md).
[[nodiscard]] double bus_factor(OpKind kind, int ranks);

/// Creates the collective. This is itself a collective call when Options::engine is set.
[[nodiscard]] std::unique_ptr<Collective> make_collective(Context& context, const Options& options,
                                                          const Extent& extent);

}  // namespace hvd::bench
