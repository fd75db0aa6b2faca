// Measures the control messages of a schedule by the number of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hvd::sim {

struct Traffic {
  std::uint64_t messages_in = 0;
  std::uint64_t messages_out = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
};

struct ScaleRow {
  int ranks = 0;
  int fanout = 0;        ///< as in `ScaleOptions`
  int levels = 0;        ///< streams between rank 0 and the last rank
  int children = 0;      ///< of rank 0
  bool together = true;  ///< as in `ScaleOptions`
  int tensors = 0;
  int tensors_per_message = 0;  ///< number of operations that a rank announces at once
  int steps_until_freeze = 0;
  Traffic until_freeze;     ///< of rank 0, the busiest
  Traffic relay;            ///< of the first one, until the freeze
  Traffic follower;         ///< of the last rank, until the freeze
  Traffic per_frozen_step;  ///< of rank 0
  Traffic per_second;       ///< heartbeats of rank 0
  Traffic relay_per_second;
  double seconds = 0;  ///< processor time of all ranks together, until the freeze
};

struct ScaleOptions {
  int ranks = 2;
  int fanout = 0;  ///< of the control tree, see `TreeRoutes`
  int tensors_per_message = 161;
  int freeze_after = 3;
  /// If true, messages that ranks send in the same step reach their relay in one turn of its
  /// loop, otherwise each in a turn of its own.
  bool together = true;
};

/// All ranks submit ResNet-50's gradients in the same order, step after step, until the schedule is
/// frozen and for some steps more.
[[nodiscard]] ScaleRow measure_scale(const ScaleOptions& options);

[[nodiscard]] std::string scale_table(const std::vector<ScaleRow>& rows);
[[nodiscard]] std::string scale_json(const std::vector<ScaleRow>& rows);

}  // namespace hvd::sim
