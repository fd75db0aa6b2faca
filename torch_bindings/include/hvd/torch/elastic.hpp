// Declares what a LibTorch trainer carries from one generation of an elastic job into the next.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/serialize.h>

#include <hvd/elastic.hpp>
#include <hvd/torch/elastic_sampler.hpp>
#include <hvd/torch/named_tensors.hpp>

namespace hvd {

/// Holds references to everything that all ranks have in common: models, optimizers, schedulers,
/// samplers, and variables such as the number of the epoch. After a change of the ranks it gives
/// all of them, on all ranks, the values that they had after the last step which any rank has
/// completed. So nothing but the step that was under way is done again.
///
///     hvd::ElasticState state(model, optimizer, sampler, epoch);
///     hvd::elastic_run(state, [&] { … });
///
/// An iteration ends with `end_step`, which `record_batch` of an added sampler calls. What a rank
/// has begun since is taken back: variables, samplers, schedulers, learning rates, the buffers of
/// models and LibTorch's random generator of the CPU are those of the last end of an iteration,
/// while the parameters and the state of a `DistributedOptimizer` change only in `step()`. If a
/// rank is lost after a step and before any rank has ended the iteration, the step remains and its
/// batch is used again.
///
/// Some parts change parameters when the state cannot know: an optimizer that is not a
/// `DistributedOptimizer` (as with `DistributedDataParallel`), the options `step_in_backward` and
/// `adasum`, and LBFGS. And a part of the state of a `ShardedOptimizer` is lost with each rank,
/// unless it has the option `mirror`.
/// With one of these, a loss takes everything back to the last `commit`, as in Horovod; rank 0 says
/// so at the start, when the state makes a first commit by itself. When ranks join, or leave
/// because they were asked to, nothing is taken back.
///
/// Everything that was added must outlive the state, and must be the same on all ranks: a newcomer
/// gets the values of a rank that was there before. The thread of `elastic_run` calls all
/// functions. In a job that is not elastic, the state makes all ranks equal to rank 0 once.
class ElasticState final : public ElasticStateBase {
 public:
  /// Adds the parts in this order.
  template <class... Parts>
  explicit ElasticState(Parts&... parts) : ElasticState() {
    (add(parts), ...);
  }
  ElasticState();
  ~ElasticState() override;

  /// Adds a module or a pointer to one, an optimizer, a scheduler of learning rates, an
  /// `ElasticSampler`, a number, a string, a tensor, or anything else that `torch::save` takes,
  /// which is then saved at each end of an iteration. Such a part finds its tensors on the device
  /// where a rank has saved them, and moves them to its own. All ranks add the same parts in the
  /// same order, before `elastic_run`, and with each optimizer the modules of its parameters. The
  /// parameters of a module without an optimizer, such as an average of weights, are sent as one
  /// rank has them when a generation begins, and are never taken back. Throws Errc::unsupported
  /// for an optimizer whose class is not one of LibTorch's. A string, or what is saved, may have up
  /// to 4 GiB - 1 bytes; for a longer one, the end of an iteration and `commit` throw
  /// Errc::invalid_argument.
  template <class T>
  void add(T& part) {
    using Part = std::remove_const_t<T>;
    if constexpr (std::derived_from<Part, torch::optim::Optimizer>) {
      add_optimizer(part);
    } else if constexpr (std::derived_from<Part, torch::nn::Module>) {
      add_module(part);
    } else if constexpr (ModulePointer<Part>) {
      add_module(*part);
    } else if constexpr (std::derived_from<Part, torch::optim::LRScheduler>) {
      add_scheduler(part);
    } else if constexpr (std::same_as<Part, ElasticSampler>) {
      add_sampler(part);
    } else if constexpr (std::same_as<Part, torch::Tensor>) {
      add_tensor(part);
    } else if constexpr (std::same_as<Part, std::string>) {
      add_value([&part] { return part; }, [&part](const std::string& bytes) { part = bytes; });
    } else if constexpr (std::is_arithmetic_v<Part> || std::is_enum_v<Part>) {
      add_value([&part] { return std::string(reinterpret_cast<const char*>(&part), sizeof part); },
                [&part](const std::string& bytes) {
                  bytes.copy(reinterpret_cast<char*>(&part), sizeof part);
                });
    } else {
      add_saved([&part](torch::serialize::OutputArchive& to) { save_to(to, part); },
                [&part](torch::serialize::InputArchive& from) { load_from(from, part); });
    }
  }

  /// Ends an iteration, after its `step()`: what follows is the next one. Collective, because it
  /// calls `elastic::check_host_updates`.
  void end_step();
  /// Keeps a copy of everything in memory, and then calls `elastic::check_host_updates`, as in
  /// Horovod. Collective; all ranks must have completed the same steps. Each generation also
  /// begins with a commit if there was one before, so that newcomers have the same.
  void commit() override;
  /// Goes back to the last `commit` on all ranks. Throws Errc::invalid_argument when there was
  /// none.
  void restore() override;

  void synchronize(Context& context) override;
  void reset() override;
  void change_agreed() override;
  void generation_ended() noexcept override;

 private:
  using Read = std::function<std::string()>;
  using Write = std::function<void(const std::string&)>;

  template <class T>
  static void save_to(torch::serialize::OutputArchive& to, const T& part) {
    using torch::operator<<;  // argument-dependent lookup does not find it for tensors
    to << part;
  }
  template <class T>
  static void load_from(torch::serialize::InputArchive& from, T& part) {
    using torch::operator>>;
    from >> part;
  }
  void add_module(torch::nn::Module& module);
  void add_optimizer(torch::optim::Optimizer& optimizer);
  void add_scheduler(torch::optim::LRScheduler& scheduler);
  void add_sampler(ElasticSampler& sampler);
  void add_tensor(torch::Tensor& tensor);
  void add_value(Read read, Write write);
  void add_saved(std::function<void(torch::serialize::OutputArchive&)> save,
                 std::function<void(torch::serialize::InputArchive&)> load);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
