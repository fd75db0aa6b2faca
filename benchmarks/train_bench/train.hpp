// Runs and times training steps.
#pragma once

#include <cstdint>
#include <string>

#include <hvd/torch.hpp>

#include "workload.hpp"

namespace hvd::bench {

enum class Mode {
  hvd,          ///< gradients averaged by `DistributedOptimizer`
  lockstep,     ///< no gradients, but a barrier per step: ideal synchronous training
  independent,  ///< no communication at all
  exact,        ///< the same batches by `ExactOptimizer`
};

struct TrainSettings {
  Mode mode = Mode::hvd;
  double seconds = 5;  ///< approximate duration, by the slowest rank's estimate
  int steps = 0;       ///< if above 0, used instead of `seconds`
  int shards = 0;      ///< of `exact`; 0: as many as ranks
  GradientMemory memory = GradientMemory::born_shared;
  torch::Device device = torch::kCPU;
};

/// The results, which are the same on every rank.
struct TrainResult {
  double images_per_s = 0;     ///< of all ranks together
  double step_ms_p50 = 0;      ///< of the slowest rank, on the host
  double backward_ms = 0;      ///< mean time per step that backward() takes the slowest rank's host
  double exposed_comm_ms = 0;  ///< mean time per step in which the trainer was blocked
  double comm_ms = 0;          ///< mean time per step in which the engine ran
  double gradient_copies = 0;  ///< per step and rank
  double rss_mb = 0;           ///< of the largest rank at the end, including shared pages
  double pss_mb = 0;           ///< mean of the ranks; each shared page divided by its users
  double page_faults = 0;      ///< of the rank with the most, per step
  double arena_mb = 0;         ///< allocated from the largest rank's arena
  int steps = 0;
};

[[nodiscard]] TrainResult train(Context& context, const Workload& workload,
                                const TrainSettings& settings);

}  // namespace hvd::bench
