// Declares the options of `DistributedOptimizer`, and the hooks that reduce its gradients while the
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
#include <hvd/torch/named_tensors.hpp>
#include <hvd/torch/optimizer_parts.hpp>

namespace hvd {

/// Selects where gradients lie while they are reduced. It concerns gradients on the CPU in a job
/// whose ranks share an arena (`Context::arena`); all others are reduced where autograd puts them.
enum class GradientMemory {
  /// Autograd allocates gradients in the arena, so that nothing is copied before or after the
  /// reduction. For the rest of the process, another allocator replaces LibTorch's CPU allocator
  /// and passes all other requests on to it.
  born_shared,
  /// A gradient is copied into the arena once autograd has accumulated it. With `zero_grad(false)`
  /// the gradient stays there and is not copied again.
  copied_shared,
  /// Gradients are reduced where autograd puts them; the engine copies them in and out.
  as_is,
};

/// Counts of one optimizer since its construction.
struct GradientCounters {
  std::uint64_t in_place = 0;  ///< gradients that were reduced where autograd put them
  std::uint64_t copied = 0;    ///< gradients that were copied before the reduction
  std::uint64_t copied_bytes = 0;
};

struct DistributedOptimizerOptions {
  ReduceOp op = ReduceOp::average;  ///< average or sum
  /// The number of backward passes whose gradients add up before they are reduced.
  int backward_passes_per_step = 1;
  /// Averages the gradients over those passes, or over fewer if the step comes earlier.
  bool average_accumulated = false;
  /// The mean weighs each rank by its `set_weight`: it is the sum of weight times gradient, divided
  /// by the sum of the weights. So ranks may have batches of different sizes. It needs the op
  /// `average`. A `SyncBatchNorm` needs its option `weighted` then.
  bool weighted = false;
  /// With `average`, gradients are divided by this before the sum and multiplied by it afterwards,
  /// so that half precision does not overflow.
  double gradient_predivide_factor = 1.0;
  /// The type in which f32 and f64 gradients are sent and summed.
  Compression compression = Compression::none;
  /// Another kind of compression, which may keep state from step to step. It cannot be combined
  /// with `compression`.
  std::shared_ptr<const GradientCompressor> compressor{};
  /// Each rank steps with its own gradients, and Adasum (hvd/torch/adasum.hpp) combines the changes
  /// of the parameters, each parameter by itself. `op` and the other options of the reduction have
  /// no effect then.
  bool adasum = false;
  /// The names of parameters whose gradients are reduced together, once all of them are ready.
  std::vector<std::vector<std::string>> groups{};
  /// The number of groups, as an alternative to `groups`: each consists of consecutive parameters,
  /// about equally many. 0 means that there are no groups.
  int num_groups = 0;
  /// Makes sparse gradients, such as those of embeddings, dense. Otherwise they are gathered from
  /// all ranks. All ranks learn that a parameter has sparse ones in the step in which any of them
  /// uses it first.
  bool sparse_as_dense = false;
  /// `backward()` returns once the gradients of its pass are reduced, as with PyTorch's DDP; then
  /// they may be read, clipped and added to. When this is false, they are being reduced until
  /// `synchronize()` or `step()`, as with Horovod, and must not be touched before. All ranks need
  /// the same value.
  bool wait_in_backward = true;
  /// The backward pass steps each parameter once its gradient is reduced, and frees the gradient.
  /// Then `step()` only ends the step. docs/reference/torch.md says what this excludes. Only
  /// `DistributedOptimizer` does so.
  bool step_in_backward = false;
  /// Only the members of the process set construct the optimizer; gradients are averaged over them.
  std::int32_t process_set = 0;
  GradientMemory memory = GradientMemory::born_shared;
  /// The constructor gives every rank the parameters of rank 0, or of the first rank of the set.
  bool broadcast_parameters = true;
  /// Each reduction gives every rank the buffers of rank 0, or of the first rank of the set. Only
  /// `DistributedDataParallel` does so.
  bool broadcast_buffers = true;
  /// Collectives are named `<name_prefix>/<instance>/<parameter>`. The ranks agree on the instance,
  /// a number, at construction, so that the optimizers of a process have different names. All ranks
  /// construct them in the same order.
  std::string name_prefix = "gradient";
  Context* context = nullptr;  ///< null: the default context. It must outlive the optimizer.
};

namespace detail {

/// The part that `DistributedOptimizer` and `DistributedDataParallel` share. A hook submits a
/// parameter's gradient when autograd has accumulated it, and the engine reduces it in place while
/// the backward pass goes on. At its end, the pass waits for everything that it has submitted.
/// Hooks run on autograd's threads; only the training thread calls the members.
/// docs/reference/torch.md lists the uses that are errors.
class GradientReducer {
 public:
  using LossClosure = torch::optim::Optimizer::LossClosure;
  using BaseStep = std::function<torch::Tensor(LossClosure)>;

  /// Collective. Throws Errc::invalid_argument, before anything is sent, for empty or repeated
  /// names, for parameters of the optimizer without a name, and for options out of range. Throws
  /// Errc::mismatch on every rank when ranks differ in names, shapes, dtypes or options.
  /// `base` steps the optimizer with the gradients of its parameters.
  GradientReducer(torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                  const DistributedOptimizerOptions& options, BaseStep base);
  /// Reduces the gradients of a module's parameters. Throws likewise.
  GradientReducer(const ModuleTensors& module, const DistributedOptimizerOptions& options);
  /// Removes the hooks and does not wait.
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Synchronizes, then steps with the base. With a closure, each evaluation is synchronized and
  /// its loss is reduced as the gradients are.
  torch::Tensor step(LossClosure closure);

  /// Reduces the gradients that have not been submitted, with zeros for missing ones, and waits for
  /// all of them. Collective unless a backward pass has done it already. Throws the first error of
  /// this step. If it throws, it has ended the step, as `step()` does.
  void synchronize();
  /// Synchronizes, unless a backward pass has done so since the last call.
  void finish_pass();
  /// See `DistributedOptimizer`.
  void set_weight(double weight);
  /// Ends the step without stepping.
  void skip_step();
  /// Ends the step if it has failed and a backward pass has thrown its error.
  void forget_failed_step();
  /// Throws Errc::invalid_argument, naming `caller`, while gradients are being reduced.
  void require_idle(const char* caller) const;
  /// Throws Errc::invalid_argument, naming `caller`, if backward passes step.
  void require_step_after_backward(const char* caller) const;

  ScopedPause skip_synchronize();
  ScopedPause no_sync();

  /// Must not be called during a backward pass.
  [[nodiscard]] const GradientCounters& gradient_counters() const;

  [[nodiscard]] StepCount& step_count() noexcept { return count_; }
  [[nodiscard]] bool steps_at_once() const noexcept { return steps_at_once_; }

 private:
  struct Impl;
  class Follower;

  /// Throws Errc::not_initialized while the job has no ranks.
  [[nodiscard]] Impl& impl() const;
  void follow(const DistributedOptimizerOptions& options,
              std::function<std::unique_ptr<Impl>(bool broadcasts)> make,
              const NamedTensors& refused = {});

  StepCount count_;
  bool steps_at_once_ = true;
  std::unique_ptr<Follower> follower_;  ///< it owns the Impl
};

}  // namespace detail
}  // namespace hvd
