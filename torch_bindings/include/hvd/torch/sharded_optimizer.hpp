// An optimizer whose state is divided among the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/named_tensors.hpp>

namespace hvd {

struct ShardedOptimizerOptions {
  ReduceOp op = ReduceOp::average;  ///< average or sum
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
  /// Collective. Errors as of `GradientReducer`. The parameters' memory moves into the buckets.
  ParameterShards(const NamedTensors& parameters, const ShardedOptimizerOptions& options);
  /// Removes the hooks; does not wait. The parameters stay where they are.
  ~ParameterShards();
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;

  /// One-dimensional, one per bucket.
  [[nodiscard]] const std::vector<torch::Tensor>& tensors() const noexcept;

  using LossClosure = torch::optim::Optimizer::LossClosure;
  /// Calls `base` for one shard after another, each with its gradient.
  torch::Tensor step(const std::function<void()>& base, const LossClosure& closure);
  /// Scales the gradients so that their norm over all parameters is at most `max_norm`; returns
  /// what it was. Between `backward()` and `step()`. Collective.
  double clip_grad_norm(double max_norm);
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
/// `Base` steps each element by itself: SGD, Adam, AdamW, Adagrad or RMSprop. It is one, with one
/// parameter group, for schedulers and everything that takes an `Optimizer&`; its parameters are
/// the shards. Gradients leave the model during `backward()`: clip them by `clip_grad_norm`.
template <class Base>
class ShardedOptimizer final : private ParameterShards, public Base {
 public:
  using LossClosure = torch::optim::Optimizer::LossClosure;

  template <class BaseOptions>
  ShardedOptimizer(const NamedTensors& parameters, BaseOptions&& base_options,
                   const ShardedOptimizerOptions& options = {})
      : ParameterShards(parameters, options),
        Base(ParameterShards::tensors(), std::forward<BaseOptions>(base_options)) {}

  /// Collective.
  torch::Tensor step(LossClosure closure = nullptr) override {
    return ParameterShards::step([this] { Base::step(); }, closure);
  }
  /// Forgets gradients that were not stepped with. Needed only where `backward()` was called
  /// without `step()`; then it is collective.
  void zero_grad(bool /*set_to_none*/ = true) { ParameterShards::zero_grad(); }
  using ParameterShards::clip_grad_norm;

  /// Collective. The first rank's archive gets the whole state, by parameter; the others' stay
  /// empty. What was saved by any number of ranks is loaded by any other number.
  void save(torch::serialize::OutputArchive& archive) const override {
    ParameterShards::save(*this, archive);
  }
  /// Every rank reads the same archive. Throws Errc::invalid_argument for a state of other
  /// parameters or of another optimizer, before anything is changed.
  void load(torch::serialize::InputArchive& archive) override {
    ParameterShards::load(*this, archive);
  }
};

}  // namespace hvd
