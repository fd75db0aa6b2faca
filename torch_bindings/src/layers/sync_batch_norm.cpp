#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <hvd/core/log.hpp>
#include <hvd/hvd.hpp>
#include <hvd/ops/internal/context_follower.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/sync_batch_norm.hpp>

#include "collectives/operation.hpp"
#include "state/agreement.hpp"

namespace hvd {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Mean and variance of each channel, in f32 or f64.
struct BatchStatistics {
  torch::Tensor mean;
  torch::Tensor variance;  ///< the mean squared deviation
  torch::Tensor count;     ///< the number of values per channel, a scalar of f64
};

std::vector<std::int64_t> all_but_channels(const torch::Tensor& values) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t i = 2; i < values.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

/// Returns the dtype of statistics, which is f32, or f64 for an input of f64.
torch::ScalarType statistics_type(const torch::Tensor& input) {
  return input.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

/// Reshapes one value for each channel to [1, C, 1, …], for a computation with `input`.
torch::Tensor by_channel(const torch::Tensor& values, const torch::Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = values.size(0);
  return values.view(shape);
}

/// Sums over all dimensions but the channels.
torch::Tensor sum_by_channel(const torch::Tensor& values) {
  return values.sum(all_but_channels(values));
}

/// Returns a row of 1 + 2 · C numbers: the number of values per channel, the means of the channels,
/// and their sums of squared deviations. The row of an empty batch is zeros.
torch::Tensor describe_batch(const torch::Tensor& input) {
  const std::int64_t channels = input.size(1);
  const auto options = input.options().dtype(statistics_type(input));
  if (input.numel() == 0) return torch::zeros({1 + 2 * channels}, options);
  const torch::Tensor wide = input.to(options.dtype());
  const auto [variance, mean] =
      torch::var_mean(wide, all_but_channels(wide), /*unbiased=*/false, /*keepdim=*/false);
  const torch::Tensor count = torch::full({1}, input.numel() / channels, options);
  return torch::cat({count, mean, variance * count});
}

/// Combines the rows that `describe_batch` returns on the ranks (Chan, Golub & LeVeque 1979,
/// "Updating formulae and a pairwise algorithm for computing sample variances").
BatchStatistics combine_batches(const torch::Tensor& rows) {
  const std::int64_t channels = (rows.size(1) - 1) / 2;
  const torch::Tensor counts = rows.narrow(1, 0, 1);
  const torch::Tensor means = rows.narrow(1, 1, channels);
  const torch::Tensor deviations = rows.narrow(1, 1 + channels, channels);
  BatchStatistics all;
  all.count = counts.sum(torch::kFloat64);  // stays on the device, so the host need not wait
  all.mean = (means * counts).sum(0) / all.count;
  all.variance = (deviations + counts * (means - all.mean).square()).sum(0) / all.count;
  return all;
}

/// Returns an object that expires when the default context does. A context that the program has
/// named outlives the module.
std::weak_ptr<const void> life_of_context(const SyncBatchNormScope& scope) {
  static const auto always = std::make_shared<char>();
  return scope.context ? std::weak_ptr<const void>(always) : detail::life_of_default_context();
}

bool is_same(const std::weak_ptr<const void>& a, const std::weak_ptr<const void>& b) noexcept {
  return !a.owner_before(b) && !b.owner_before(a);
}

/// The allreduce in backward(), whose context may have ended by then.
struct Exchange final : torch::CustomClassHolder {
  Exchange(AllreduceOptions how, std::weak_ptr<const void> life_of_its_context, bool is_weighted)
      : options(std::move(how)), life(std::move(life_of_its_context)), weighted(is_weighted) {}

  [[nodiscard]] torch::Tensor sum(const torch::Tensor& values) const {
    if (!life.expired()) {
      return detail::run_in_stream(
          context_of(options),
          detail::allreduce_operation(values, options, Compression::none, detail::Form::copy));
    }
    throw Error(Errc::not_initialized,
                "SyncBatchNorm: a backward pass came after the context of its forward pass");
  }

  AllreduceOptions options;
  std::weak_ptr<const void> life;
  bool weighted;
};

/// Normalizes the input. Its gradient takes into account that the statistics depend on the inputs
/// of all ranks.
struct Normalize : torch::autograd::Function<Normalize> {
  static torch::Tensor forward(AutogradContext* saved, const torch::Tensor& input,
                               const std::optional<torch::Tensor>& weight,
                               const std::optional<torch::Tensor>& bias, const torch::Tensor& mean,
                               const torch::Tensor& inverse, const torch::Tensor& count,
                               const c10::IValue& exchange) {
    saved->save_for_backward({input, weight.value_or(torch::Tensor()), mean, inverse, count});
    saved->saved_data["exchange"] = exchange;
    const torch::Tensor scale = weight ? inverse * *weight : inverse;
    const torch::Tensor offset = bias ? *bias - mean * scale : -mean * scale;
    return torch::addcmul(by_channel(offset, input), input.to(mean.scalar_type()),
                          by_channel(scale, input))
        .to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    if (torch::GradMode::is_enabled()) {
      // The statistics have no graph, so the result would lack their dependence on the input.
      throw Error(Errc::unsupported,
                  "SyncBatchNorm: a backward pass with create_graph is not supported");
    }
    const variable_list tensors = saved->get_saved_variables();
    const torch::Tensor& input = tensors[0];
    const torch::Tensor& weight = tensors[1];
    const torch::Tensor& mean = tensors[2];
    const torch::Tensor& inverse = tensors[3];
    const torch::Tensor& count = tensors[4];
    const auto exchange =
        c10::static_intrusive_pointer_cast<Exchange>(saved->saved_data["exchange"].toCapsule());

    const torch::Tensor gradient = gradients[0].to(mean.scalar_type());
    const torch::Tensor centred = input.to(mean.scalar_type()) - by_channel(mean, input);
    const torch::Tensor sum = sum_by_channel(gradient);
    const torch::Tensor product = sum_by_channel(gradient * centred);
    const std::int64_t channels = mean.size(0);
    // A weighted optimizer multiplies the gradients of each rank by its share after this pass. So
    // the sums of the other ranks are multiplied by their shares here, and divided by that of this
    // rank. An empty batch divides by 0, but has no elements that use the quotient.
    const auto own = static_cast<double>(input.numel() / channels);
    const torch::Tensor sums = torch::cat({sum, product});
    const torch::Tensor everywhere =
        exchange->weighted ? exchange->sum(sums * own / count) / own : exchange->sum(sums) / count;

    const torch::Tensor slope =
        everywhere.narrow(0, channels, channels) * inverse.square();  // along the deviation
    const torch::Tensor scale = weight.defined() ? inverse * weight : inverse;
    const torch::Tensor of_input =
        (gradient - by_channel(everywhere.narrow(0, 0, channels), input) -
         centred * by_channel(slope, input)) *
        by_channel(scale, input);
    variable_list result(7);
    result[0] = of_input.to(input.scalar_type());
    if (weight.defined()) {
      result[1] = (product * inverse).to(weight.scalar_type());
      result[2] = sum.to(weight.scalar_type());
    }
    return result;
  }
};

bool is_batch_norm(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module) != nullptr;
}

/// Warns of layers that were not replaced, because otherwise each rank would silently normalize its
/// own batch there.
void warn_of_plain_layers(const torch::nn::Sequential& converted, const SyncBatchNormScope& scope) {
  std::vector<std::string> plain;
  for (const auto& item : converted->named_modules()) {
    if (is_batch_norm(*item.value())) plain.push_back(item.key());
  }
  if (plain.empty()) return;
  int own_rank = -1;
  if (scope.context != nullptr || is_initialized()) {
    Context& context = context_of(scope);
    own_rank = context.rank();
    if (own_rank != context.ranks_of(scope.process_set).front()) return;
  }
  log(LogLevel::warn, own_rank,
      fmt::format("convert_sync_batch_norm: {} BatchNorm layers inside other modules cannot be "
                  "replaced, the first of them {}. Declare them as hvd::SyncBatchNorm",
                  plain.size(), plain.front()));
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& settings,
                                     const SyncBatchNormScope& scope)
    : NormImplBase(settings), scope_(scope) {}

void SyncBatchNormImpl::reset() {
  NormImplBase::reset();
  instance_ = -1;
}

Context& SyncBatchNormImpl::context() const { return context_of(scope_); }

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  if (input.dim() < 2 || input.size(1) != options.num_features()) {
    throw Error(Errc::invalid_argument,
                fmt::format("SyncBatchNorm: the input is [N, {}, …], not {}",
                            options.num_features(), to_string(Shape(input.sizes().vec()))));
  }
}

/// Returns a name that only this layer has. The name is the same in every step, so that the
/// schedule can freeze.
std::string SyncBatchNormImpl::exchange_name() {
  // In another context other ranks may have new layers, which have no number yet.
  const std::weak_ptr<const void> life = life_of_context(scope_);
  if (instance_ < 0 || !is_same(life, agreed_in_)) {
    instance_ = detail::agree_on_instance(context(), "sync_batch_norm", scope_.process_set);
    agreed_in_ = life;
  }
  return fmt::format("sync_batch_norm/{}", instance_);
}

void SyncBatchNormImpl::update_running(const torch::Tensor& mean, const torch::Tensor& variance,
                                       const torch::Tensor& count) {
  if (!options.track_running_stats()) return;
  const torch::NoGradGuard no_grad;
  num_batches_tracked += 1;
  const auto update = [this](torch::Tensor& running, const torch::Tensor& now) {
    const auto type = running.scalar_type();
    if (options.momentum()) {
      running.lerp_(now.to(type), *options.momentum());
    } else {
      running.lerp_(now.to(type), num_batches_tracked.to(type).reciprocal());
    }
  };
  update(running_mean, mean);
  update(running_var, variance * (count / (count - 1)));
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  _check_input_dim(input);
  if (!is_training() && options.track_running_stats()) {
    return torch::nn::functional::detail::batch_norm(input, running_mean, running_var, weight, bias,
                                                     /*training=*/false, 0, options.eps());
  }
  const std::string name = exchange_name();
  // If all ranks together have too few values, each rank has. Such a rank reads the sum, so it
  // waits for the exchange, and for its error.
  const bool has_few = input.numel() < std::max<std::int64_t>(1, 2 * input.size(1));
  const auto gather = has_few ? detail::run : detail::run_in_stream;
  BatchStatistics all;
  {
    const torch::NoGradGuard no_grad;
    all = combine_batches(
        gather(context(), detail::allgather_operation(
                              describe_batch(input).unsqueeze(0),
                              {.name = name + "/forward", .process_set = scope_.process_set})));
  }
  if (has_few) {
    if (const auto count = all.count.item<double>(); count < 2) {
      throw Error(Errc::invalid_argument,
                  fmt::format("SyncBatchNorm: {} values per channel on all ranks, and a variance "
                              "needs 2",
                              count));
    }
  }
  if (is_training()) update_running(all.mean, all.variance, all.count);
  const torch::Tensor inverse = (all.variance + options.eps()).rsqrt();
  AllreduceOptions back{.name = name + "/backward",
                        .op = ReduceOp::sum,
                        .process_set = scope_.process_set,
                        .context = &context()};
  const auto affine = [this](const torch::Tensor& parameter) {
    return options.affine() ? std::make_optional(parameter) : std::nullopt;
  };
  return Normalize::apply(input, affine(weight), affine(bias), all.mean, inverse, all.count,
                          c10::IValue::make_capsule(c10::make_intrusive<Exchange>(
                              std::move(back), life_of_context(scope_), scope_.weighted)));
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "hvd::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps() << ")";
}

torch::nn::AnyModule SyncBatchNormImpl::converted(const torch::nn::AnyModule& module,
                                                  const SyncBatchNormScope& scope) {
  const auto replace = [&scope](auto* plain) -> torch::nn::AnyModule {
    auto synchronized = std::make_shared<SyncBatchNormImpl>(plain->options, scope);
    synchronized->parameters_["weight"] = synchronized->weight = plain->weight;
    synchronized->parameters_["bias"] = synchronized->bias = plain->bias;
    if (plain->options.track_running_stats()) {
      synchronized->running_mean.set_data(plain->running_mean);
      synchronized->running_var.set_data(plain->running_var);
      synchronized->num_batches_tracked.set_data(plain->num_batches_tracked);
    }
    synchronized->train(plain->is_training());
    return torch::nn::AnyModule(std::move(synchronized));
  };
  torch::nn::Module* const held = module.ptr().get();
  if (auto* const one = dynamic_cast<torch::nn::BatchNorm1dImpl*>(held)) return replace(one);
  if (auto* const two = dynamic_cast<torch::nn::BatchNorm2dImpl*>(held)) return replace(two);
  if (auto* const three = dynamic_cast<torch::nn::BatchNorm3dImpl*>(held)) return replace(three);
  return module;
}

torch::nn::Sequential convert_sync_batch_norm(const torch::nn::Sequential& modules,
                                              const SyncBatchNormScope& scope) {
  torch::nn::Sequential converted;
  // Without modules yet, so that each keeps its own mode, such as a frozen one that evaluates.
  converted->train(modules->is_training());
  const auto names = modules->named_children();
  std::size_t index = 0;
  for (const torch::nn::AnyModule& module : *modules) {
    converted->push_back(names[index++].key(), SyncBatchNormImpl::converted(module, scope));
  }
  warn_of_plain_layers(converted, scope);
  return converted;
}

}  // namespace hvd
