// Keeps the shards of a ShardedOptimizer and a mirror of another rank's, so that the state outlives
// a lost rank.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

#include <hvd/core/context.hpp>
#include <hvd/core/internal/recovery.hpp>
#include <hvd/torch/optimizer_parts.hpp>

#include "sharded/shard_bucket.hpp"

namespace hvd::detail {

/// The parts of one rank in one division, after the generation of that division has ended.
struct HeldDivision {
  struct Piece {
    torch::Tensor values;
    std::unique_ptr<torch::optim::OptimizerParamState> state;
    torch::Tensor gradient;  ///< defined if a step is pending
  };
  Division division;
  /// The outer index is that of the bucket. The first of its parts is the rank's own shard.
  std::vector<std::vector<Piece>> buckets;
};

/// Each rank steps its own shards and those of the rank before it, with the same gradients, so that
/// either rank can be lost. docs/internals/elastic_state.md has the invariant. The thread that
/// steps calls all functions.
class ShardMirror {
 public:
  /// `base` is the optimizer that was made of the parts, and `step` steps those of them that have a
  /// gradient. `count` must outlive the mirror.
  ShardMirror(torch::optim::Optimizer& base, std::function<void()> step, StepCount& count)
      : base_(base), step_(std::move(step)), count_(count) {}

  /// Begins with the parts of these buckets, whose values and states are not valid yet.
  void attach(std::deque<ShardBucket>& buckets, const RankInSet& rank);
  /// Keeps the parts, if they were valid. The buckets may be destroyed then.
  void detach() noexcept;

  /// A step begins, so that no earlier one is pending any more.
  void begin_step() noexcept { current_.pending = 0; }
  /// Must be called when this rank has all gradients of the step and has changed nothing. Marks the
  /// step as pending and calls `vote`, which returns only when all ranks have come this far. Then
  /// the step counts as made, and earlier divisions are forgotten. If `vote` throws, the step stays
  /// pending, and `go_on_with` makes or forgets it.
  void decide(const std::function<void()>& vote);
  /// The parameters hold the shards of all ranks.
  void gathered() noexcept { gathered_ = true; }
  /// Something other than a step has changed the state in the same way on all ranks.
  void changed() noexcept;

  /// Returns what this rank has of earlier divisions.
  [[nodiscard]] Divisions held() const;
  /// Forgets all divisions but this one, and makes or forgets its pending step.
  void go_on_with(std::int64_t division, bool makes_pending);
  /// Fills the parts and the parameters from the division that the ranks go on with. Collective.
  void assemble(Context& context, const std::vector<ShardSource>& shards);
  /// From now on the parts are those of a division with this number.
  void begin(std::int64_t division) noexcept;

 private:
  void hold();
  void make_pending(HeldDivision& held);

  torch::optim::Optimizer& base_;
  std::function<void()> step_;
  StepCount& count_;
  std::vector<HeldDivision> held_;
  std::deque<ShardBucket>* buckets_ = nullptr;
  Division current_;  ///< the number is 0 while the parts are not valid
  bool gathered_ = true;
};

}  // namespace hvd::detail
