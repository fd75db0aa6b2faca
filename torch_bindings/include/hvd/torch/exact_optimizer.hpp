// Declares an optimizer whose results are the same with any number of ranks, to the bit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/types.h>

#include <hvd/torch/elastic_sampler.hpp>
#include <hvd/torch/named_tensors.hpp>
#include <hvd/torch/optimizer_parts.hpp>
#include <hvd/torch/wrapped_optimizer.hpp>

namespace hvd {

/// A part of the batch of a step. Which examples it has does not depend on the ranks.
struct BatchShard {
  int number = 0;
  std::vector<std::size_t> examples;  ///< the indices of its examples
  /// The seed depends on the sampler's seed, the step and the number of the shard. LibTorch's
  /// generator of the CPU has this seed when the shard begins; other generators can be given it.
  std::uint64_t seed = 0;
};

namespace detail {

/// Holds what an `ExactOptimizer` carries from step to step, besides the state of its optimizer.
struct ShardProgress {
  std::int64_t steps = 0;  ///< completed
  int threads = 0;         ///< LibTorch's intra-op threads, on whose number sums depend
  /// The bytes of the module's buffers, a row for each shard. Before the first step it has no rows.
  torch::Tensor buffers;
};

}  // namespace detail

/// Trains with the same bits whatever the number of ranks is, also while ranks come and go. The
/// batch of a step is divided into as many shards as the sampler says. Each rank computes the
/// gradients of some of them, and the shards are added in a fixed order:
///
///     hvd::ElasticSampler sampler(size, {.global_batch = 256, .shards = 8});
///     torch::optim::Adam adam(model->parameters());
///     hvd::ExactOptimizer optimizer(adam, *model, sampler);
///     hvd::ElasticState state(model, optimizer, sampler);
///     …
///     optimizer.backward(*batch, [&](const hvd::BatchShard& shard) {
///       return mean_loss_of(model, shard.examples);
///     });
///     optimizer.step();
///     sampler.record_batch(batch->size());
///
/// Every shard has its own random numbers (`BatchShard::seed`) and its own buffers of the module,
/// such as the running statistics of BatchNorm, which all ranks know after each step. Outside of
/// the shards the module has the buffers of shard 0, so these are what an evaluation uses and a
/// checkpoint of the module contains. `save` and `load` include the buffers of all shards.
///
/// The same bits need ranks that are processes on CPUs with the same features. All use as many
/// intra-op threads of LibTorch; with an `ElasticState`, as many as rank 0 had when it constructed
/// this object. Nothing may communicate between `step()` and `record_batch`: when a rank is lost
/// there and every other rank has made the step, Errc::unsupported ends the job, unless there was a
/// `commit()`.
/// docs/how-to/elastic.md says what it costs.
class ExactOptimizer final : public detail::WrappedOptimizer, public detail::CountsSteps {
 public:
  using LossOfShard = std::function<torch::Tensor(const BatchShard&)>;

  /// `optimizer` is one of LibTorch's. It and the module must outlive this object. All of the
  /// parameters are on the CPU. Throws Errc::invalid_argument for a sampler without shards and for
  /// an optimizer that communicates itself, and Errc::unsupported for LBFGS and other devices.
  ExactOptimizer(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                 const ElasticSampler& sampler);
  ~ExactOptimizer() override;

  /// Sets the gradients of the parameters to those of the mean loss of the whole batch, and returns
  /// that loss; both are the same on all ranks. `batch` is what the sampler's `next` has returned.
  /// `loss_of` is called for each shard of this rank, and returns the mean of the losses of its
  /// examples, without calling `backward()`. Shards differ by one example at most; those of a short
  /// step may have none, and are left out. Collective. Throws Errc::invalid_argument for a loss
  /// that has not one element or needs no gradient, and Errc::mismatch on every rank when they
  /// differ in batch, step, threads or CPU.
  double backward(const std::vector<std::size_t>& batch, const LossOfShard& loss_of);

  /// Steps with these gradients. Throws Errc::invalid_argument without a `backward` of this object
  /// before it, and for a closure.
  torch::Tensor step(LossClosure closure = nullptr) override;

  /// Saves the state of the optimizer, the number of steps and the buffers of all shards.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Loads the same, or only the state of an optimizer. Then each shard begins with the buffers
  /// that the module has. Throws Errc::invalid_argument when the saved number of shards is another
  /// one.
  void load(torch::serialize::InputArchive& archive) override;

  [[nodiscard]] detail::StepCount& step_count() noexcept override { return count_; }
  [[nodiscard]] bool steps_at_once() const noexcept override { return true; }
  [[nodiscard]] detail::ShardProgress& progress() noexcept { return progress_; }

 private:
  struct Workspace;
  struct Pass;

  void prepare(const std::vector<std::size_t>& batch, const std::vector<torch::Tensor>& trained);
  [[nodiscard]] BatchShard shard_of(const std::vector<std::size_t>& batch, int number) const;

  detail::ModuleTensors module_;
  ElasticSampler sampler_;
  detail::ShardProgress progress_;
  detail::StepCount count_;
  std::unique_ptr<Workspace> workspace_;
  bool has_gradients_ = false;
};

}  // namespace hvd
