// Declares an optimizer whose state is divided among the ranks (ZeRO, stage 1).
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
#include <hvd/torch/optimizer_parts.hpp>
#include <hvd/torch/verify.hpp>

namespace hvd {

struct ShardedOptimizerOptions {
  ReduceOp op = ReduceOp::average;  ///< average or sum
  /// The number of backward passes whose gradients add up before they are reduced.
  int backward_passes_per_step = 1;
  /// Averages the gradients over those passes, or over fewer if the step comes earlier.
  bool average_accumulated = false;
  /// The mean weighs each rank by its `set_weight`, as in `DistributedOptimizerOptions`.
  bool weighted = false;
  /// The type in which f32 and f64 gradients are sent and summed. Parameters are sent as they are.
  Compression compression = Compression::none;
  /// The size of a bucket of parameters, in bytes. A bucket is reduced in one collective while the
  /// backward pass goes on, and another collective gathers its parameters.
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  /// The constructor gives every rank the parameters of rank 0, or of the first rank of the set.
  bool broadcast_parameters = true;
  /// In an elastic job, each rank also keeps and steps the shards of the rank before it, so that
  /// the loss of one rank takes nothing back. It costs the memory of a second shard with its state,
  /// and each rank sends its part of the reduced gradients to the next rank before the parameters
  /// change. Has no effect in other jobs. Needs the default context and all ranks.
  bool mirror = false;
  std::int32_t process_set = 0;  ///< only its members construct the optimizer
  std::string name_prefix = "sharded";
  Context* context = nullptr;  ///< null: the default context. It must outlive the optimizer.
};

namespace detail {

/// The part of `ShardedOptimizer` that does not depend on its base: the parameters lie in flat
/// buckets, and of each bucket this rank owns a shard.
class ParameterShards {
 public:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;

  /// Moves the parameters' values into the buckets. `names` holds a name for each parameter of the
  /// groups. Collective; throws what `GradientReducer` throws.
  ParameterShards(const Groups& groups, const NamedTensors& names,
                  const ShardedOptimizerOptions& options);
  /// Removes the hooks and does not wait. The parameters stay in the memory of the buckets.
  ~ParameterShards();
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;

  /// Returns one group for each given group, with its options. Its parameters are the shards of
  /// this rank, one one-dimensional tensor for each bucket, or the given ones while the job has no
  /// ranks.
  [[nodiscard]] const Groups& groups() const noexcept;
  /// Gives this optimizer, which was made of `groups`, the shards of each later context. `step`
  /// steps those of its parameters that have a gradient.
  void give_shards_to(torch::optim::Optimizer& base, std::function<void()> step);

  using LossClosure = torch::optim::Optimizer::LossClosure;
  /// Steps one bucket after another.
  torch::Tensor step(const LossClosure& closure);
  /// Scales the gradients so that their norm over all parameters is at most `max_norm`, and returns
  /// the norm that they had, as torch::nn::utils::clip_grad_norm_ does. `norm_type` is positive;
  /// with infinity, the norm is the greatest magnitude. Must be called between `backward()` and
  /// `step()`. Collective. Throws Errc::invalid_argument for another `norm_type`.
  double clip_grad_norm(double max_norm, double norm_type = 2);
  void set_weight(double weight);
  /// Multiplies the gradients, and returns whether every element on all ranks is finite. Must be
  /// called between `backward()` and `step()`. Collective.
  bool scale_gradients(double factor);
  [[nodiscard]] ScopedPause no_sync();
  void zero_grad();

  /// Fills the archive of the first rank, or of all ranks.
  void save(const torch::optim::Optimizer& base, torch::serialize::OutputArchive& archive,
            bool on_all_ranks) const;
  void load(torch::optim::Optimizer& base, torch::serialize::InputArchive& archive);

  [[nodiscard]] ShardMirror* mirror() const noexcept;
  [[nodiscard]] StepCount& step_count() noexcept;

 private:
  struct Impl;
  class Follower;

  /// Throws Errc::not_initialized while the job has no ranks.
  [[nodiscard]] Impl& impl() const;

  std::unique_ptr<Follower> follower_;  ///< it owns the Impl
};

}  // namespace detail

/// Implements stage 1 of Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training
/// trillion parameter models". Each of the n ranks has all parameters, but it steps only one n-th
/// of the elements and keeps the optimizer's state only of those. Gradients are reduce-scattered
/// while the backward pass runs. `step()` updates this rank's shards and gathers those of all
/// ranks, bucket by bucket.
///
/// `Base` must step each element by itself, as SGD, Adam, AdamW, Adagrad and RMSprop do. The
/// optimizer derives from `Base`, so schedulers and everything that takes an `Optimizer&` accept
/// it; its parameters are the shards. `backward()` moves the gradients out of the model, so clip
/// them with `clip_grad_norm` and not with LibTorch's function.
///
/// In an elastic job (hvd/elastic.hpp) it is constructed before `elastic_run`. Each generation
/// divides the parameters anew, and an `ElasticState` brings the optimizer's state: with the option
/// `mirror` that after the last step, otherwise, or when a rank and the next one are lost together,
/// that of its last commit.
template <class Base>
class ShardedOptimizer final : private detail::ParameterShards,
                               public Base,
                               public ScalableGradients,
                               public detail::CountsSteps,
                               public detail::DividesState {
  using Shards = detail::ParameterShards;
  static_assert(!std::is_base_of_v<torch::optim::LBFGS, Base>,
                "LBFGS does not step each element by itself: its state cannot be divided");

 public:
  using LossClosure = torch::optim::Optimizer::LossClosure;
  /// Tells `save_checkpoint` that all ranks call `save`.
  static constexpr bool kSaveIsCollective = true;

  /// Makes one parameter group. A parameter with two names, as of shared layers, is used once.
  template <class BaseOptions>
  ShardedOptimizer(const NamedTensors& parameters, BaseOptions&& base_options,
                   const ShardedOptimizerOptions& options = {})
      : ShardedOptimizer(Groups{parameters.distinct().tensors()}, parameters,
                         std::forward<BaseOptions>(base_options), options) {}

  /// Takes several parameter groups; `names` holds a name for each of their parameters.
  template <class BaseOptions>
  ShardedOptimizer(const Groups& groups, const NamedTensors& names, BaseOptions&& base_options,
                   const ShardedOptimizerOptions& options = {})
      : Shards(groups, names, options),
        Base(Shards::groups(), std::forward<BaseOptions>(base_options)) {
    Shards::give_shards_to(*this, [this] { Base::step(); });
  }

  /// Collective. A closure is called once, and its loss is reduced as the gradients are.
  torch::Tensor step(LossClosure closure = nullptr) override { return Shards::step(closure); }
  /// Drops gradients that no `step()` has used. It is needed only after a `backward()` without a
  /// `step()`, and is collective then. Not to be called if some rank's pass has used no parameter.
  void zero_grad(bool /*set_to_none*/ = true) { Shards::zero_grad(); }
  using Shards::clip_grad_norm;
  /// Gives this rank's gradients of the next step a weight, as `DistributedOptimizer` does. Called
  /// once, before the last backward pass of the step.
  using Shards::set_weight;
  bool scale_gradients(double factor) override { return Shards::scale_gradients(factor); }
  void step_scaled() override { step(); }
  void skip_scaled() override { zero_grad(); }
  /// While the result lives, backward passes add to the gradients of this rank and send nothing.
  /// The first pass after it, or `step()`, sends the sum.
  using Shards::no_sync;

  /// Collective. Writes the whole state, by parameter, into the first rank's archive; the archives
  /// of the other ranks stay empty. Any number of ranks can load the state.
  void save(torch::serialize::OutputArchive& archive) const override {
    Shards::save(*this, archive, /*on_all_ranks=*/false);
  }
  void save_on_all_ranks(torch::serialize::OutputArchive& archive) const override {
    Shards::save(*this, archive, /*on_all_ranks=*/true);
  }
  /// Every rank reads the same archive. Before anything is changed it throws Errc::invalid_argument
  /// for an archive that is damaged or belongs to other parameters, other groups or another
  /// optimizer.
  void load(torch::serialize::InputArchive& archive) override { Shards::load(*this, archive); }

  [[nodiscard]] detail::ShardMirror* mirror() const noexcept override { return Shards::mirror(); }
  [[nodiscard]] detail::StepCount& step_count() noexcept override { return Shards::step_count(); }
  [[nodiscard]] bool steps_at_once() const noexcept override { return mirror() != nullptr; }
};

/// The state is divided, so no rank has all of it to send.
template <class Base>
void broadcast_optimizer_state(ShardedOptimizer<Base>& optimizer, int root = 0,
                               Context& context = hvd::context()) = delete;

/// The state is divided, so there is nothing to compare; verify the model instead.
template <class Base>
Verification verify(ShardedOptimizer<Base>& optimizer, Context& context = hvd::context()) = delete;

}  // namespace hvd
