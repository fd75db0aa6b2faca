// What a schedule costs in control messages, by the number of ranks.
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
  int tensors = 0;
  int tensors_per_message = 0;  ///< how many a rank announces at once
  int steps_until_freeze = 0;
  Traffic until_freeze;     ///< of rank 0, the busiest
  Traffic follower;         ///< of any other rank, until the freeze
  Traffic per_frozen_step;  ///< of rank 0
  double seconds = 0;       ///< of this machine's time, all ranks together, until the freeze
};

/// All ranks submit ResNet-50's gradients, in their order, step after step, until the schedule is
/// frozen, and then some steps more.
[[nodiscard]] ScaleRow measure_scale(int ranks, int tensors_per_message, int freeze_after);

[[nodiscard]] std::string scale_table(const std::vector<ScaleRow>& rows);
[[nodiscard]] std::string scale_json(const std::vector<ScaleRow>& rows);

}  // namespace hvd::sim
