// An optimizer whose state is divided among the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/compression.hpp>
#include <hvd/torch/named_tensors.hpp>
#include <hvd/torch/scalable_gradients.hpp>
#include <hvd/torch/scoped_pause.hpp>
#include <hvd/torch/verify.hpp>

namespace hvd {

struct ShardedOptimizerOptions {
  ReduceOp op = ReduceOp::average;  ///< average or sum
  /// Backward passes whose gradients add up before they are reduced.
  int backward_passes_per_step = 1;
  /// The gradients of several passes are averaged instead; of fewer passes, over those.
  bool average_accumulated = false;
  /// What f32 and f64 gradients travel and are summed in. Parameters travel as they are.
  Compression compression = Compression::none;
  /// Parameters are reduced, stepped and gathered in buckets of about this many bytes, while the
  /// backward pass goes on.
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  /// Construction gives every rank the parameters of rank 0, or of the set's first rank.
  bool broadcast_parameters = true;
  std::int32_t process_set = 0;  ///< only its members construct the optimizer
  std::string name_prefix = "sharded";
  Context* context = nullptr;  ///< null: the default context. Outlives the optimizer.
};

/// What `ShardedOptimizer` is made of: the parameters in flat buckets, of each of which this rank
/// has a shard.
class ParameterShards {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;

  /// Collective. Errors as of `GradientReducer`. The parameters' memory moves into the buckets.
  /// `names` holds a name for each parameter of the groups.
  ParameterShards(const Groups& groups, const NamedTensors& names,
                  const ShardedOptimizerOptions& options);
  /// Removes the hooks; does not wait. The parameters stay where they are.
  ~ParameterShards();
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;

  /// As many as there were, with their options; one-dimensional tensors, one per bucket.
  [[nodiscard]] const Groups& groups() const noexcept;

  using LossClosure = torch::optim::Optimizer::LossClosure;
  /// Calls `base` for one shard after another, each with its gradient.
  torch::Tensor step(const std::function<void()>& base, const LossClosure& closure);
  /// Scales the gradients so that their norm over all parameters is at most `max_norm`; returns
  /// what it was. Between `backward()` and `step()`. Collective.
  double clip_grad_norm(double max_norm);
  /// Multiplies the gradients; returns whether every element, on all ranks, is finite. Between
  /// `backward()` and `step()`. Collective.
  bool scale_gradients(double factor);
  [[nodiscard]] ScopedPause no_sync() noexcept;
  void zero_grad();

  void save(const torch::optim::Optimizer& base, torch::serialize::OutputArchive& archive) const;
  void load(torch::optim::Optimizer& base, torch::serialize::InputArchive& archive);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models",
/// stage 1: every rank has all parameters, but the optimizer's state for, and the work of stepping,
/// one n-th of them. Gradients are reduce-scattered while the backward pass runs; `step()` updates
/// this rank's shards and gathers everybody's, bucket by bucket.
///
/// `Base` steps each element by itself: SGD, Adam, AdamW, Adagrad or RMSprop. It is one, for
/// schedulers and everything that takes an `Optimizer&`; its parameters are the shards. Gradients
/// leave the model during `backward()`: clip them by `clip_grad_norm`.
template <class Base>
class ShardedOptimizer final : private ParameterShards, public Base, public ScalableGradients {
  static_assert(!std::is_base_of_v<torch::optim::LBFGS, Base>,
                "LBFGS does not step each element by itself: its state cannot be divided");

 public:
  using LossClosure = torch::optim::Optimizer::LossClosure;
  /// For `save_checkpoint`: all ranks call `save`.
  static constexpr bool kSaveIsCollective = true;

  /// One parameter group. A parameter with two names, as of shared layers, is taken once.
  template <class BaseOptions>
  ShardedOptimizer(const NamedTensors& parameters, BaseOptions&& base_options,
                   const ShardedOptimizerOptions& options = {})
      : ShardedOptimizer(Groups{parameters.distinct().tensors()}, parameters,
                         std::forward<BaseOptions>(base_options), options) {}

  /// Several parameter groups; `names` holds a name for each of their parameters.
  template <class BaseOptions>
  ShardedOptimizer(const Groups& groups, const NamedTensors& names, BaseOptions&& base_options,
                   const ShardedOptimizerOptions& options = {})
      : ParameterShards(groups, names, options),
        Base(ParameterShards::groups(), std::forward<BaseOptions>(base_options)) {}

  /// Collective. A closure is called once, and its loss reduced like the gradients.
  torch::Tensor step(LossClosure closure = nullptr) override {
    return ParameterShards::step([this] { Base::step(); }, closure);
  }
  /// Forgets gradients that were not stepped with. Needed only where `backward()` was called
  /// without `step()`; then it is collective, once gradients have been sent.
  void zero_grad(bool /*set_to_none*/ = true) { ParameterShards::zero_grad(); }
  using ParameterShards::clip_grad_norm;
  bool scale_gradients(double factor) override { return ParameterShards::scale_gradients(factor); }
  void step_scaled() override { step(); }
  void skip_scaled() override { zero_grad(); }
  /// Backward passes while it lives add to the gradients of this rank and send nothing; the first
  /// one after it, or `step()`, sends the sum.
  using ParameterShards::no_sync;

  /// Collective. The first rank's archive gets the whole state, by parameter; the others' stay
  /// empty. What was saved by any number of ranks is loaded by any other number.
  void save(torch::serialize::OutputArchive& archive) const override {
    ParameterShards::save(*this, archive);
  }
  /// Every rank reads the same archive. Throws Errc::invalid_argument for one that is damaged, or
  /// of other parameters, groups or another optimizer, before anything is changed.
  void load(torch::serialize::InputArchive& archive) override {
    ParameterShards::load(*this, archive);
  }
};

/// Its state is divided: there is nothing that one rank could send.
template <class Base>
void broadcast_optimizer_state(ShardedOptimizer<Base>& optimizer, int root = 0) = delete;
template <class Base>
void broadcast_optimizer_state(Context& context, ShardedOptimizer<Base>& optimizer,
                               int root = 0) = delete;

/// Nor anything to compare: verify the model.
template <class Base>
Verification verify(ShardedOptimizer<Base>& optimizer) = delete;
template <class Base>
Verification verify(Context& context, ShardedOptimizer<Base>& optimizer) = delete;

}  // namespace hvd
