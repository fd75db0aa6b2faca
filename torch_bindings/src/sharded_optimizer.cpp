#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <unordered_set>

#include <fmt/format.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/sharded_optimizer.hpp>

#include "broadcast_tensors.hpp"
#include "gradient_home.hpp"
#include "gradient_setup.hpp"
#include "gradient_slot.hpp"
#include "shard_bucket.hpp"
#include "sharded_state.hpp"
#include "tensor_traits.hpp"

namespace hvd {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Errc::invalid_argument, "ShardedOptimizer: " + message);
}

/// Everything that ranks must have in common.
std::vector<NamedDigest> describe_shards(const NamedTensors& parameters,
                                         const ShardedOptimizerOptions& options) {
  DistributedOptimizerOptions same;
  same.op = options.op;
  same.num_groups = 0;
  same.broadcast_parameters = options.broadcast_parameters;
  same.name_prefix = fmt::format("{} {}", options.name_prefix, options.bucket_bytes);
  return describe(parameters, same);
}

NamedTensors checked(const NamedTensors& parameters, const ShardedOptimizerOptions& options) {
  if (options.op != ReduceOp::average && options.op != ReduceOp::sum) {
    refuse(fmt::format("op is average or sum, not {}", to_string(options.op)));
  }
  if (options.bucket_bytes < 1) refuse(fmt::format("bucket_bytes is {}", options.bucket_bytes));
  NamedTensors distinct = parameters.distinct();
  if (distinct.size() == 0) refuse("there are no parameters");
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : distinct.items()) {
    if (name.empty()) refuse("a parameter has an empty name");
    if (!names.insert(name).second) refuse(fmt::format("two parameters are named {}", name));
    require_supported(tensor);
    if (!tensor.is_floating_point()) refuse(fmt::format("{} is not floating", name));
  }
  return distinct;
}

}  // namespace

struct ParameterShards::Impl final : GradientListener {
  struct Slot {
    torch::Tensor parameter;
    GradientHook hook;
    ShardBucket* bucket = nullptr;
    std::size_t place = 0;  ///< in the bucket
  };

  Impl(const NamedTensors& parameters, const ShardedOptimizerOptions& given);

  void on_gradient(std::size_t index, const torch::Tensor& incoming) override;
  void send_all();
  void take_all();
  template <class Function>
  void remembering(Function function) noexcept {
    try {
      function();
    } catch (...) {
      if (!first_error) first_error = std::current_exception();
    }
  }
  void throw_first_error() {
    if (first_error) std::rethrow_exception(std::exchange(first_error, nullptr));
  }

  const ShardedOptimizerOptions options;
  Context& context;
  GradientHome home;
  std::deque<ShardBucket> buckets;
  std::deque<Slot> slots;
  std::vector<torch::Tensor> shards;

  std::mutex mutex;  // hooks of different devices run on different threads
  std::exception_ptr first_error;
};

ParameterShards::Impl::Impl(const NamedTensors& parameters, const ShardedOptimizerOptions& given)
    : options(given),
      context(given.context ? *given.context : hvd::context()),
      home(GradientMemory::copied_shared, context, {}) {
  const auto submitted = static_cast<std::int64_t>(context.stats().submitted);
  const std::string difference = first_difference(context, describe_shards(parameters, options),
                                                  "sharded_optimizer", options.process_set);
  if (!difference.empty()) {
    throw Error(Errc::mismatch, "ShardedOptimizer: not the same on all ranks: " + difference);
  }
  const std::vector<int> ranks = context.ranks_of(options.process_set);
  const std::int64_t instance =
      broadcast(context, torch::tensor({submitted}), ranks.front(),
                {.name = "sharded_optimizer/instance", .process_set = options.process_set})
          .item<std::int64_t>();
  if (options.broadcast_parameters) {
    broadcast_tensors(context, parameters, "parameter/", ranks.front(), options.process_set);
  }
  const auto mine = std::lower_bound(ranks.begin(), ranks.end(), context.rank()) - ranks.begin();
  const ShardPlace place{mine, std::ssize(ranks)};

  // The backward pass comes to the last parameters first.
  const auto& items = parameters.items();
  for (const BucketRange range : bucket_ranges(parameters, options.bucket_bytes)) {
    const std::string name = fmt::format("{}/{}/{}", options.name_prefix, instance, buckets.size());
    ShardBucket& bucket = buckets.emplace_back(
        context, home, name, options, place,
        std::vector<NamedTensors::Item>(items.begin() + static_cast<std::ptrdiff_t>(range.begin),
                                        items.begin() + static_cast<std::ptrdiff_t>(range.end)));
    shards.push_back(bucket.shard());
    for (std::size_t i = range.begin; i < range.end; ++i) {
      Slot& slot = slots.emplace_back();
      slot.parameter = items[i].second;
      slot.bucket = &bucket;
      slot.place = i - range.begin;
      slot.hook.attach(slot.parameter, *this, slots.size() - 1);
    }
  }
}

void ParameterShards::Impl::on_gradient(std::size_t index, const torch::Tensor&) {
  const std::lock_guard lock(mutex);
  Slot& slot = slots[index];
  remembering([&] {
    torch::Tensor& gradient = slot.parameter.mutable_grad();
    slot.bucket->add(slot.place, gradient);
    gradient.reset();
  });
}

/// What autograd gave no gradient counts as zeros.
void ParameterShards::Impl::send_all() {
  const std::lock_guard lock(mutex);
  for (std::size_t index = 0; index < slots.size(); ++index) {
    remembering([&] { slots[index].hook.attach(slots[index].parameter, *this, index); });
  }
  for (ShardBucket& bucket : buckets) remembering([&] { bucket.send(); });
}

void ParameterShards::Impl::take_all() {
  send_all();
  for (ShardBucket& bucket : buckets) {
    remembering([&] { static_cast<void>(bucket.gradient()); });
  }
  throw_first_error();
}

ParameterShards::ParameterShards(const NamedTensors& parameters,
                                 const ShardedOptimizerOptions& options)
    : impl_(std::make_unique<Impl>(checked(parameters, options), options)) {}

ParameterShards::~ParameterShards() = default;

const std::vector<torch::Tensor>& ParameterShards::tensors() const noexcept {
  return impl_->shards;
}

torch::Tensor ParameterShards::step(const std::function<void()>& base, const LossClosure& closure) {
  Impl& impl = *impl_;
  torch::Tensor loss;
  if (closure) {
    const torch::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const torch::NoGradGuard no_grad;
  impl.send_all();
  // While one bucket steps, the next is on its way here and the one before on its way to all.
  for (ShardBucket& bucket : impl.buckets) {
    impl.remembering([&] {
      torch::Tensor& gradient = bucket.shard().mutable_grad();
      gradient = bucket.gradient();
      base();
      gradient.reset();
      bucket.spread();
    });
    bucket.shard().mutable_grad().reset();
  }
  for (ShardBucket& bucket : impl.buckets) impl.remembering([&] { bucket.finish(); });
  impl.throw_first_error();
  impl.context.mark_step();
  return loss;
}

double ParameterShards::clip_grad_norm(double max_norm) {
  Impl& impl = *impl_;
  const torch::NoGradGuard no_grad;
  impl.take_all();
  torch::Tensor squares = torch::zeros({1}, torch::kFloat64);
  for (ShardBucket& bucket : impl.buckets) {
    squares += bucket.gradient().to(torch::kFloat64).square().sum().cpu();
  }
  const double norm = std::sqrt(allreduce(impl.context, squares,
                                          {.name = impl.options.name_prefix + "/norm",
                                           .op = ReduceOp::sum,
                                           .process_set = impl.options.process_set})
                                    .item<double>());
  // As torch::nn::utils::clip_grad_norm_.
  const double scale = max_norm / (norm + 1e-6);
  if (scale < 1) {
    for (ShardBucket& bucket : impl.buckets) bucket.gradient().mul_(scale);
  }
  return norm;
}

void ParameterShards::zero_grad() {
  Impl& impl = *impl_;
  bool begun = false;
  {
    const std::lock_guard lock(impl.mutex);
    for (const ShardBucket& bucket : impl.buckets) begun = begun || bucket.begun();
    for (Impl::Slot& slot : impl.slots) slot.parameter.mutable_grad().reset();
  }
  if (!begun) return;
  impl.take_all();
  for (ShardBucket& bucket : impl.buckets) bucket.forget();
}

void ParameterShards::save(const torch::optim::Optimizer& base,
                           torch::serialize::OutputArchive& archive) const {
  save_sharded_state(impl_->context, impl_->options.process_set, impl_->buckets, base, archive);
}

void ParameterShards::load(torch::optim::Optimizer& base, torch::serialize::InputArchive& archive) {
  load_sharded_state(impl_->buckets, base, archive);
}

}  // namespace hvd
