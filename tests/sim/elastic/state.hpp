// What a rank trains: a digest for the parameters, and a record of how they came about.
#pragma once

#include <array>
#include <cstdint>

#include <hvd/core/internal/recovery.hpp>
#include <hvd/core/internal/splitmix64.hpp>

#include "elastic/plan.hpp"

namespace hvd::sim::elastic {

using detail::Standing;
using SampleSet = std::uint64_t;  ///< a bit for each sample

/// The parameters. It carries what was trained into them, wherever they are copied.
struct Model {
  std::uint64_t digest = 0;
  bool damaged = false;  ///< of no step: a part of another one, or left in the middle of a step
  int steps = 0;
  int epoch = 0;
  std::array<std::uint8_t, kMostSamples> used{};     ///< how often, in this epoch
  std::array<std::uint8_t, kMostSamples> allowed{};  ///< once, and once more for each interruption
  SampleSet open = 0;  ///< of the last step, until its iteration has ended

  void apply(std::uint32_t generation, SampleSet batch) {
    digest = splitmix64(digest ^ splitmix64(batch ^ (std::uint64_t{generation} << 50)));
    ++steps;
    open = batch;
    for (int i = 0; i < kMostSamples; ++i) {
      if ((batch >> i & 1U) != 0) ++used[static_cast<std::size_t>(i)];
    }
  }
  /// The batch of a step whose iteration has not ended is used again.
  void interrupt() {
    for (int i = 0; i < kMostSamples; ++i) {
      if ((open >> i & 1U) != 0) ++allowed[static_cast<std::size_t>(i)];
    }
    open = 0;
  }
  void begin_epoch(int number, int samples) {
    epoch = number;
    used.fill(0);
    allowed.fill(0);
    for (int i = 0; i < samples; ++i) allowed[static_cast<std::size_t>(i)] = 1;
  }
};

/// The two shards that a rank has of one division. They have made the same steps.
struct HeldShards {
  detail::Division division{};
  std::uint64_t digest = 0;
  Model pending{};  ///< after the step that is pending

  /// Returns whether its own shard, or the one that it mirrors, is this one.
  [[nodiscard]] bool has(std::size_t shard, bool as_mirror) const {
    const std::int64_t own = division.rank - (as_mirror ? 1 : 0);
    return (own < 0 ? division.ranks - 1 : own) == static_cast<std::int64_t>(shard);
  }
};

/// What the end of an iteration keeps.
struct Progress {
  int epoch = 0;
  SampleSet recorded = 0;
};

}  // namespace hvd::sim::elastic
