// What both forms of `DistributedOptimizer` are made of: hooks that reduce gradients while the
// backward pass is still running.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/compression.hpp>
#include <hvd/torch/gradient_compressor.hpp>
#include <hvd/torch/gradient_memory.hpp>
#include <hvd/torch/named_tensors.hpp>
#include <hvd/torch/scoped_pause.hpp>

namespace hvd {

struct DistributedOptimizerOptions {
  ReduceOp op = ReduceOp::average;  ///< average or sum
  /// Backward passes whose gradients add up before they are reduced.
  int backward_passes_per_step = 1;
  /// The gradients of several passes are averaged instead; of fewer passes, over those.
  bool average_accumulated = false;
  /// With `average`: gradients are divided by this before the sum and multiplied after it, so that
  /// half precision does not overflow.
  double gradient_predivide_factor = 1.0;
  /// What f32 and f64 gradients travel and are summed in.
  Compression compression = Compression::none;
  /// Instead: a kind of its own, with memory from step to step. Null: none.
  std::shared_ptr<const GradientCompressor> compressor{};
  /// Each rank steps with its own gradients, and the steps are combined by Adasum
  /// (hvd/torch/adasum.hpp), with a layer for each parameter. `op` and what else is about reducing
  /// gradients does not count then.
  bool adasum = false;
  /// Names of parameters whose gradients are reduced together, none before all are there.
  std::vector<std::vector<std::string>> groups{};
  /// Or this many groups of neighbours, about equally many parameters each. 0: none.
  int num_groups = 0;
  /// Sparse gradients, of embeddings, are made dense; else they are gathered from all ranks. A
  /// parameter with sparse gradients has one on some rank in the first step: then all know.
  bool sparse_as_dense = false;
  /// Only its members construct the optimizer; gradients are averaged over them.
  std::int32_t process_set = 0;
  GradientMemory memory = GradientMemory::born_shared;
  /// Construction gives every rank the parameters of rank 0, or of the set's first rank.
  bool broadcast_parameters = true;
  /// Collectives are named `<name_prefix>/<instance>/<parameter>`. The instance is a number that
  /// one rank picks at construction, so several optimizers of a process never clash; ranks
  /// construct them in the same order.
  std::string name_prefix = "gradient";
  Context* context = nullptr;  ///< null: the default context. Outlives the optimizer.
};

/// A parameter's gradient is submitted when autograd has accumulated it, and is reduced in place
/// by the engine until `synchronize()`. Hooks run on the thread that autograd uses; everything else
/// belongs to the training thread. docs/torch.md says what counts as misuse.
class GradientReducer {
 public:
  /// Collective. Throws Errc::invalid_argument (empty or repeated names, parameters of the
  /// optimizer without a name, options out of range) before anything is sent; Errc::mismatch on
  /// every rank when ranks differ in names, shapes, dtypes or options.
  GradientReducer(torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                  const DistributedOptimizerOptions& options);
  /// Removes the hooks; does not wait.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  using LossClosure = torch::optim::Optimizer::LossClosure;
  using BaseStep = std::function<torch::Tensor(LossClosure)>;
  /// Synchronizes, then calls `base`; with a closure, each evaluation is synchronized and its loss
  /// reduced like the gradients.
  torch::Tensor step(const BaseStep& base, LossClosure closure);

  /// Collective. Reduces what has not been submitted (zeros where there is no gradient), waits for
  /// everything, and throws the first error of this step.
  void synchronize();
  /// Throws Errc::invalid_argument while gradients are in flight.
  void require_idle(const char* caller) const;

  ScopedPause skip_synchronize() noexcept;
  ScopedPause no_sync() noexcept;

  /// What became of the gradients' memory. Not during a backward pass.
  [[nodiscard]] const GradientCounters& gradient_counters() const noexcept;
  /// The number in the names.
  [[nodiscard]] std::int64_t instance() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
