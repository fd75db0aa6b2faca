#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <mutex>
#include <unordered_map>

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

[[noreturn]] void refuse(const std::string& message) { misuse(message, "ShardedOptimizer"); }

void check(const ShardedOptimizerOptions& options) {
  if (options.op != ReduceOp::average && options.op != ReduceOp::sum) {
    refuse(fmt::format("op is average or sum, not {}", to_string(options.op)));
  }
  if (options.backward_passes_per_step < 1) {
    refuse(fmt::format("backward_passes_per_step is {}, not positive",
                       options.backward_passes_per_step));
  }
  if (options.bucket_bytes < 1) refuse(fmt::format("bucket_bytes is {}", options.bucket_bytes));
}

/// The parameters of each group with their names, in the order of the names.
std::vector<NamedTensors> by_group(const ParameterShards::Groups& groups,
                                   const NamedTensors& names) {
  std::unordered_map<const c10::TensorImpl*, std::size_t> group_of;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const torch::Tensor& parameter : groups[group].params()) {
      if (!group_of.emplace(parameter.unsafeGetTensorImpl(), group).second) {
        refuse("a parameter is in the groups twice");
      }
    }
  }
  std::unordered_map<const void*, std::string> name_of;
  std::vector<std::vector<NamedTensors::Item>> items(groups.size());
  for (const auto& [name, parameter] : parameters_of(groups, names, "ShardedOptimizer").items()) {
    if (!parameter.is_floating_point()) refuse(fmt::format("{} is not floating", name));
    // Each would get a place of its own in the buckets, and what ties them would be lost.
    const auto [first, alone] = name_of.emplace(parameter.const_data_ptr(), name);
    if (parameter.numel() > 0 && !alone) {
      refuse(fmt::format("{} and {} are two tensors with the same memory; share one tensor",
                         first->second, name));
    }
    items[group_of.at(parameter.unsafeGetTensorImpl())].emplace_back(name, parameter);
  }
  if (group_of.empty()) refuse("there are no parameters");
  return {items.begin(), items.end()};
}

/// Everything that ranks must have in common.
std::vector<NamedDigest> describe_shards(const std::vector<NamedTensors>& groups,
                                         const ShardedOptimizerOptions& options) {
  DistributedOptimizerOptions same;
  same.op = options.op;
  same.backward_passes_per_step = options.backward_passes_per_step;
  same.average_accumulated = options.average_accumulated;
  same.compression = options.compression;
  same.broadcast_parameters = options.broadcast_parameters;
  same.name_prefix = fmt::format("{} {}", options.name_prefix, options.bucket_bytes);
  std::vector<NamedDigest> all;
  for (const NamedTensors& group : groups) {
    std::vector<NamedDigest> one = describe(group, same);
    one.back().first = fmt::format("options, or the size of group {}", &group - groups.data());
    one.back().second += group.size();
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

}  // namespace

struct ParameterShards::Impl final : GradientListener {
  struct Slot {
    torch::Tensor parameter;
    GradientHook hook;
    ShardBucket* bucket = nullptr;
    std::size_t place = 0;  ///< in the bucket
    int passes = 0;         ///< backward passes since the last step
  };

  Impl(const Groups& given_groups, const std::vector<NamedTensors>& named,
       const ShardedOptimizerOptions& given);

  void on_gradient(std::size_t index, const torch::Tensor& incoming) override;
  void give(Slot& slot, double scale = 1);
  void send_all();
  void take_all();
  torch::Tensor reduce(const torch::Tensor& tensor, const char* topic, ReduceOp op);
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
  std::string name;  ///< in front of the collectives' topics
  std::deque<ShardBucket> buckets;
  std::deque<Slot> slots;
  Groups groups;  ///< of shards

  std::mutex mutex;  // hooks of different devices run on different threads
  std::exception_ptr first_error;
  int no_sync_depth = 0;
};

ParameterShards::Impl::Impl(const Groups& given_groups, const std::vector<NamedTensors>& named,
                            const ShardedOptimizerOptions& given)
    : options(given),
      context(given.context ? *given.context : hvd::context()),
      home(GradientMemory::copied_shared, context, {}) {
  const auto submitted = static_cast<std::int64_t>(context.stats().submitted);
  const std::string difference = first_difference(context, describe_shards(named, options),
                                                  "sharded_optimizer", options.process_set);
  if (!difference.empty()) {
    throw Error(Errc::mismatch, "ShardedOptimizer: not the same on all ranks: " + difference);
  }
  const std::vector<int> ranks = context.ranks_of(options.process_set);
  const std::int64_t instance =
      broadcast(context, torch::tensor({submitted}), ranks.front(),
                {.name = "sharded_optimizer/instance", .process_set = options.process_set})
          .item<std::int64_t>();
  name = fmt::format("{}/{}", options.name_prefix, instance);
  const auto mine = std::lower_bound(ranks.begin(), ranks.end(), context.rank()) - ranks.begin();
  const ShardPlace place{mine, std::ssize(ranks)};

  for (std::size_t group = 0; group < named.size(); ++group) {
    if (options.broadcast_parameters) {
      broadcast_tensors(context, named[group], "parameter/", ranks.front(), options.process_set);
    }
    std::vector<torch::Tensor> shards;
    const auto& items = named[group].items();
    for (const BucketRange range : bucket_ranges(named[group], options.bucket_bytes)) {
      ShardBucket& bucket = buckets.emplace_back(
          context, home, fmt::format("{}/{}", name, buckets.size()), group, options, place,
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
    groups.emplace_back(std::move(shards), given_groups[group].has_options()
                                               ? given_groups[group].options().clone()
                                               : nullptr);
  }
}

void ParameterShards::Impl::on_gradient(std::size_t index, const torch::Tensor&) {
  if (no_sync_depth > 0) return;
  const std::lock_guard lock(mutex);
  Slot& slot = slots[index];
  if (!slot.bucket->has(slot.place) && ++slot.passes < options.backward_passes_per_step) return;
  const bool sent = slot.bucket->has(slot.place);
  remembering([&] { give(slot); });
  // Not an error of communication: it may leave backward(), and step() repeats it.
  if (sent) std::rethrow_exception(first_error);
}

void ParameterShards::Impl::give(Slot& slot, double scale) {
  torch::Tensor gradient = std::exchange(slot.parameter.mutable_grad(), {});
  if (slot.bucket->has(slot.place)) {
    refuse(
        fmt::format("{} got a gradient from more than backward_passes_per_step = {} backward "
                    "passes before step(); use no_sync() for those before the last",
                    slot.bucket->parameters()[slot.place].first, options.backward_passes_per_step));
  }
  if (scale != 1) gradient = gradient * scale;
  slot.bucket->add(slot.place, gradient);
}

/// Also what fewer passes than planned have left. What has no gradient counts as zeros.
void ParameterShards::Impl::send_all() {
  const std::lock_guard lock(mutex);
  int passes = 0;
  for (const Slot& slot : slots) passes = std::max(passes, slot.passes);
  const int planned = options.backward_passes_per_step;
  // An average over fewer passes is one over those that there were.
  const bool fewer = options.average_accumulated && passes > 0 && passes < planned;
  const double scale = fewer ? static_cast<double>(planned) / passes : 1;
  const torch::NoGradGuard no_grad;
  for (std::size_t index = 0; index < slots.size(); ++index) {
    Slot& slot = slots[index];
    remembering([&] {
      slot.hook.attach(slot.parameter, *this, index);
      slot.passes = 0;
      if (slot.parameter.grad().defined()) give(slot, scale);
    });
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

torch::Tensor ParameterShards::Impl::reduce(const torch::Tensor& tensor, const char* topic,
                                            ReduceOp op) {
  return allreduce(
      context, tensor,
      {.name = fmt::format("{}/{}", name, topic), .op = op, .process_set = options.process_set});
}

ParameterShards::ParameterShards(const Groups& groups, const NamedTensors& names,
                                 const ShardedOptimizerOptions& options) {
  check(options);
  impl_ = std::make_unique<Impl>(groups, by_group(groups, names), options);
}

ParameterShards::~ParameterShards() = default;

const ParameterShards::Groups& ParameterShards::groups() const noexcept { return impl_->groups; }

torch::Tensor ParameterShards::step(const std::function<void()>& base, const LossClosure& closure) {
  Impl& impl = *impl_;
  torch::Tensor loss;
  if (closure) {
    const torch::AutoGradMode with_gradients(true);
    loss = closure();
    if (!loss.defined()) refuse("the closure returned no loss");
  }
  const torch::NoGradGuard no_grad;
  impl.send_all();
  if (closure) {
    impl.remembering([&] { loss = impl.reduce(loss.detach(), "loss", impl.options.op); });
  }
  // While one bucket steps, the next is on its way here and the one before on its way to all.
  for (ShardBucket& bucket : impl.buckets) {
    impl.remembering([&] {
      torch::Tensor& gradient = bucket.shard().mutable_grad();
      gradient = bucket.gradient();
      bucket.take_values();
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
  const double norm = std::sqrt(impl.reduce(squares, "norm", ReduceOp::sum).item<double>());
  // As torch::nn::utils::clip_grad_norm_.
  const double scale = max_norm / (norm + 1e-6);
  if (scale < 1) {
    for (ShardBucket& bucket : impl.buckets) bucket.gradient().mul_(scale);
  }
  return norm;
}

bool ParameterShards::scale_gradients(double factor) {
  Impl& impl = *impl_;
  const torch::NoGradGuard no_grad;
  impl.take_all();
  torch::Tensor finite = torch::ones({1}, torch::kUInt8);
  for (ShardBucket& bucket : impl.buckets) {
    const torch::Tensor gradient = bucket.gradient().mul_(factor);
    finite *= torch::isfinite(gradient).all().cpu();
  }
  return impl.reduce(finite, "finite", ReduceOp::min).item<std::uint8_t>() != 0;
}

ScopedPause ParameterShards::no_sync() noexcept { return ScopedPause(impl_->no_sync_depth); }

void ParameterShards::zero_grad() {
  Impl& impl = *impl_;
  bool begun = false;
  {
    const std::lock_guard lock(impl.mutex);
    for (const ShardBucket& bucket : impl.buckets) begun = begun || bucket.begun();
    for (Impl::Slot& slot : impl.slots) {
      slot.parameter.mutable_grad().reset();
      slot.passes = 0;
    }
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
