// Steps of training, timed.
#pragma once

#include <cstdint>
#include <string>

#include <hvd/torch.hpp>

#include "workload.hpp"

namespace hvd::bench {

enum class Mode {
  hvd,          ///< gradients averaged by `DistributedOptimizer`
  lockstep,     ///< no gradients, a barrier per step: the ideal of synchronous training
  independent,  ///< no communication at all
};

struct TrainSettings {
  Mode mode = Mode::hvd;
  double seconds = 5;  ///< about as long as is measured, by the slowest rank's estimate
  int steps = 0;       ///< instead of `seconds`
  GradientMemory memory = GradientMemory::born_shared;
};

/// The same on every rank.
struct TrainResult {
  double images_per_s = 0;     ///< of all ranks together
  double step_ms_p50 = 0;      ///< of the slowest rank
  double exposed_comm_ms = 0;  ///< per step, mean: the trainer was blocked on communication
  double comm_ms = 0;          ///< per step, mean: the engine ran
  double gradient_copies = 0;  ///< per step and rank
  double rss_mb = 0;           ///< the largest rank's, at the end; with shared pages
  double pss_mb = 0;           ///< a rank's, mean; each shared page divided by its sharers
  double arena_mb = 0;         ///< of that, given away by the largest rank's arena
  int steps = 0;
};

[[nodiscard]] TrainResult train(Context& context, const Workload& workload,
                                const TrainSettings& settings);

}  // namespace hvd::bench
