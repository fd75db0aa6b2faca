#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include <hvd/hvd.hpp>
#include <hvd/ops/elastic.hpp>
#include <hvd/ops/internal/context_follower.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/sharded_optimizer.hpp>

#include "collectives/first_error.hpp"
#include "gradients/gradient_hook.hpp"
#include "gradients/gradient_placement.hpp"
#include "gradients/gradient_setup.hpp"
#include "gradients/gradient_weight.hpp"
#include "sharded/shard_bucket.hpp"
#include "sharded/shard_mirror.hpp"
#include "sharded/sharded_state.hpp"
#include "state/agreement.hpp"

namespace hvd::detail {
namespace {

constexpr const char* kName = "ShardedOptimizer";

[[noreturn]] void refuse_sharding(const std::string& message) { misuse(message, kName); }

void check_sharding(const ShardedOptimizerOptions& options) {
  check_reduction(options.op, options.backward_passes_per_step, options.weighted, kName);
  if (options.bucket_bytes < 1)
    refuse_sharding(fmt::format("bucket_bytes is {}", options.bucket_bytes));
  if (options.mirror && (options.context != nullptr || options.process_set != 0))
    refuse_sharding("mirror needs the default context and all ranks");
}

/// Returns the parameters of each group with their names, in the order of the names.
std::vector<NamedTensors> by_group(const ParameterShards::Groups& groups,
                                   const NamedTensors& names) {
  std::unordered_map<const c10::TensorImpl*, std::size_t> group_of;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const torch::Tensor& parameter : groups[group].params()) {
      if (!group_of.emplace(parameter.unsafeGetTensorImpl(), group).second) {
        refuse_sharding("a parameter is in the groups twice");
      }
    }
  }
  std::unordered_map<const void*, std::string> name_of;
  std::vector<std::vector<NamedTensors::Item>> items(groups.size());
  for (const auto& [name, parameter] : parameters_of(groups, names, kName).items()) {
    if (!parameter.is_floating_point() && !parameter.is_complex()) {
      refuse_sharding(fmt::format("{} is neither floating nor complex", name));
    }
    // Two parameters with the same memory would no longer share it after the copy to the buckets.
    const auto [first, alone] = name_of.emplace(parameter.const_data_ptr(), name);
    if (parameter.numel() > 0 && !alone) {
      refuse_sharding(fmt::format(
          "{} and {} are two tensors with the same memory; share one tensor", first->second, name));
    }
    items[group_of.at(parameter.unsafeGetTensorImpl())].emplace_back(name, parameter);
  }
  if (group_of.empty()) refuse_sharding("there are no parameters");
  return {items.begin(), items.end()};
}

/// Returns the digests of everything that must be the same on all ranks.
std::vector<NamedDigest> describe_shards(const std::vector<NamedTensors>& groups,
                                         const ShardedOptimizerOptions& options) {
  DistributedOptimizerOptions same;
  same.op = options.op;
  same.backward_passes_per_step = options.backward_passes_per_step;
  same.average_accumulated = options.average_accumulated;
  same.compression = options.compression;
  same.weighted = options.weighted;
  same.broadcast_parameters = options.broadcast_parameters;
  same.name_prefix = options.name_prefix;
  std::vector<NamedDigest> all = describe_options(same);
  all.push_back(digest_of_option("bucket_bytes", fmt::to_string(options.bucket_bytes)));
  all.push_back(digest_of_option("mirror", fmt::to_string(options.mirror)));
  all.emplace_back("the number of groups", groups.size());
  for (const NamedTensors& group : groups) {
    all.emplace_back(fmt::format("the size of group {}", &group - groups.data()), group.size());
  }
  for (const NamedTensors& group : groups) {
    const std::vector<NamedDigest> one = describe_parameters(group, same);
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
    std::size_t index = 0;  ///< the index in the bucket
    int passes = 0;         ///< the number of backward passes since the last step
  };

  Impl(const Groups& given_groups, const std::vector<NamedTensors>& named,
       const ShardedOptimizerOptions& given, bool mirrors);

  void on_gradient(std::size_t index, const torch::Tensor& incoming) override;
  void submit(Slot& slot, double factor = 1);
  void send_all();
  void reduce_all();
  void end_reduction();
  void decide(ShardMirror& mirror);
  torch::Tensor reduce(const torch::Tensor& tensor, const char* topic, ReduceOp op);

  const ShardedOptimizerOptions options;  ///< the op is sum if they are weighted
  Context& context;
  GradientPlacement placement;
  std::string name;  ///< the names of all collectives begin with it
  std::deque<ShardBucket> buckets;
  std::deque<Slot> slots;
  Groups groups;                         ///< the parameter groups of the shards
  std::optional<GradientWeight> weight;  ///< only if the options are weighted

  std::mutex mutex;  // hooks of different devices run on different threads
  FirstError error;
  int no_sync_depth = 0;
};

ParameterShards::Impl::Impl(const Groups& given_groups, const std::vector<NamedTensors>& named,
                            const ShardedOptimizerOptions& given, bool mirrors)
    : options(with_op_of_shares(given)),
      context(context_of(given)),
      placement(GradientMemory::copied_shared, context, {}) {
  name = agree_on_optimizer(context, describe_shards(named, options), options.process_set, kName,
                            options.name_prefix);
  if (options.weighted) weight.emplace(context, options.process_set, name, kName);
  const int root = context.ranks_of(options.process_set).front();
  const RankInSet rank = rank_in_set(context, options.process_set);

  for (std::size_t group = 0; group < named.size(); ++group) {
    if (options.broadcast_parameters) {
      broadcast_tensors(context, named[group], "parameter/", root, options.process_set);
    }
    std::vector<torch::Tensor> shards;
    const auto& items = named[group].items();
    for (const BucketRange range : bucket_ranges(named[group], options.bucket_bytes)) {
      ShardBucket& bucket = buckets.emplace_back(
          context, placement, fmt::format("{}/{}", name, buckets.size()), group, options, rank,
          std::vector<NamedTensors::Item>(items.begin() + static_cast<std::ptrdiff_t>(range.begin),
                                          items.begin() + static_cast<std::ptrdiff_t>(range.end)),
          mirrors && rank.size > 1);
      for (const ShardPart& part : bucket.parts()) shards.push_back(part.values);
      for (std::size_t i = range.begin; i < range.end; ++i) {
        Slot& slot = slots.emplace_back();
        slot.parameter = items[i].second;
        slot.bucket = &bucket;
        slot.index = i - range.begin;
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
  if (!slot.bucket->has(slot.index) && ++slot.passes < options.backward_passes_per_step) return;
  const bool sent = slot.bucket->has(slot.index);
  error.keep([&] { submit(slot); });
  // A second gradient for a bucket that has one is an error of the program: backward() throws it at
  // once, and step() throws it again. Errors of communication are kept for step().
  if (sent) error.rethrow();
}

void ParameterShards::Impl::submit(Slot& slot, double factor) {
  const torch::Tensor gradient = std::exchange(slot.parameter.mutable_grad(), {});
  if (slot.bucket->has(slot.index)) {
    refuse_sharding(
        fmt::format("{} got a gradient from more than backward_passes_per_step = {} backward "
                    "passes before step(); use no_sync() for those before the last",
                    slot.bucket->parameters()[slot.index].first, options.backward_passes_per_step));
  }
  if (weight) factor *= weight->share(error);
  slot.bucket->add(slot.index, gradient, factor);
}

/// Sends all buckets that have not been sent, also with the gradients of fewer passes than planned,
/// and with zeros for missing gradients.
void ParameterShards::Impl::send_all() {
  const std::lock_guard lock(mutex);
  if (weight) weight->share(error);  // other ranks wait for it before they send their buckets
  int passes = 0;
  for (const Slot& slot : slots) passes = std::max(passes, slot.passes);
  const double factor =
      factor_of_fewer_passes(options.average_accumulated, passes, options.backward_passes_per_step);
  const torch::NoGradGuard no_grad;
  for (std::size_t index = 0; index < slots.size(); ++index) {
    Slot& slot = slots[index];
    error.keep([&] {
      slot.hook.attach(slot.parameter, *this, index);
      slot.passes = 0;
      if (slot.parameter.grad().defined()) submit(slot, factor);
    });
  }
  for (ShardBucket& bucket : buckets) error.keep([&] { bucket.send(); });
}

/// Sends all buckets and waits for their reduction. An error is kept until the step ends, because
/// the other ranks, which may have none, wait for this one in what follows.
void ParameterShards::Impl::reduce_all() {
  send_all();
  for (ShardBucket& bucket : buckets) {
    error.keep([&] { static_cast<void>(bucket.gradient()); });
  }
}

/// Ends the reduction, also when it has failed, so that the next pass starts without gradients.
void ParameterShards::Impl::end_reduction() {
  for (ShardBucket& bucket : buckets) {
    if (bucket.begun()) error.keep([&] { static_cast<void>(bucket.gradient()); });
    bucket.drop_gradients();
  }
  if (weight) weight->finish(error);
}

/// Waits until every rank has the reduced gradients of its parts, so that all ranks that are left
/// can make the step if any rank begins to. Before that, no rank has changed anything.
void ParameterShards::Impl::decide(ShardMirror& mirror) {
  mirror.begin_step();
  // An error of the program, which `error` may have already, must not end the step of other ranks.
  FirstError failed;
  for (ShardBucket& bucket : buckets) {
    failed.keep([&] {
      bucket.update_parts();
      bucket.send_to_mirror();
    });
  }
  for (ShardBucket& bucket : buckets) {
    failed.keep([&] { static_cast<void>(bucket.gradients()); });
  }
  if (failed) {
    error.keep([&] { failed.rethrow(); });
    end_reduction();
    error.take();
  }
  mirror.decide([&] { static_cast<void>(reduce(torch::ones({1}), "decided", ReduceOp::sum)); });
}

torch::Tensor ParameterShards::Impl::reduce(const torch::Tensor& tensor, const char* topic,
                                            ReduceOp op) {
  return allreduce(tensor, {.name = fmt::format("{}/{}", name, topic),
                            .op = op,
                            .process_set = options.process_set,
                            .context = &context});
}

/// Divides the parameters anew in each context, because the ranks are others.
class ParameterShards::Follower final : public ContextFollower {
 public:
  Follower(const Groups& groups, std::vector<NamedTensors> named,
           const ShardedOptimizerOptions& options)
      : given(groups),
        mirrors(options.mirror && elastic::active()),
        named_(std::move(named)),
        options_(options) {
    // Outside of an elastic job, and with a process set, a missing context makes this throw.
    if (options_.context || options_.process_set != 0 || is_initialized() || !elastic::active()) {
      impl = std::make_unique<Impl>(given, named_, options_, mirrors);
    }
    options_.broadcast_parameters = false;  // in later contexts an ElasticState does it
  }

  void detach() noexcept override {
    if (options_.context) return;
    if (mirror) mirror->detach();
    impl.reset();
  }
  void attach(Context&) override {
    // A process set belongs to one context.
    if (impl || options_.context || options_.process_set != 0) return;
    impl = std::make_unique<Impl>(given, named_, options_, mirrors);
    for (std::size_t group = 0; group < given.size(); ++group) {
      base->param_groups()[group].params() = impl->groups[group].params();
    }
    begin_state(*base);
    attach_mirror();
  }
  void attach_mirror() {
    if (mirror && impl) mirror->attach(impl->buckets, rank_in_set(impl->context, 0));
  }

  const Groups given;
  const bool mirrors;
  std::unique_ptr<Impl> impl;
  torch::optim::Optimizer* base = nullptr;
  std::function<void()> base_step;
  StepCount count;
  std::unique_ptr<ShardMirror> mirror;  ///< null unless `mirrors`

 private:
  std::vector<NamedTensors> named_;
  ShardedOptimizerOptions options_;
};

ParameterShards::ParameterShards(const Groups& groups, const NamedTensors& names,
                                 const ShardedOptimizerOptions& options) {
  check_sharding(options);
  follower_ = std::make_unique<Follower>(groups, by_group(groups, names), options);
}

ParameterShards::~ParameterShards() = default;

ParameterShards::Impl& ParameterShards::impl() const {
  if (!follower_->impl) static_cast<void>(context());  // throws
  if (!follower_->impl) refuse_sharding("it was used after the generation of its context");
  return *follower_->impl;
}

const ParameterShards::Groups& ParameterShards::groups() const noexcept {
  return follower_->impl ? follower_->impl->groups : follower_->given;
}

void ParameterShards::give_shards_to(torch::optim::Optimizer& base, std::function<void()> step) {
  follower_->base = &base;
  follower_->base_step = std::move(step);
  if (!follower_->mirrors) return;
  follower_->mirror = std::make_unique<ShardMirror>(base, follower_->base_step, follower_->count);
  follower_->attach_mirror();
}

ShardMirror* ParameterShards::mirror() const noexcept { return follower_->mirror.get(); }

StepCount& ParameterShards::step_count() noexcept { return follower_->count; }

torch::Tensor ParameterShards::step(const LossClosure& closure) {
  Impl& impl = this->impl();
  ShardMirror* const mirror = follower_->mirror.get();
  torch::Tensor loss;
  if (closure) {
    const torch::AutoGradMode with_gradients(true);
    loss = closure();
    if (!loss.defined()) refuse_sharding("the closure returned no loss");
  }
  const torch::NoGradGuard no_grad;
  impl.send_all();
  if (closure) {
    loss = loss.detach();
    if (impl.weight) loss = scale_(loss.clone(), impl.weight->share(impl.error));
    impl.error.keep([&] { loss = impl.reduce(loss, "loss", impl.options.op); });
  }
  if (mirror) impl.decide(*mirror);
  follower_->count.underway = true;
  bool stepped_all = true;
  // While one bucket is stepped, the next one is reduced and the previous one is gathered. With a
  // mirror all are reduced, and none of them needs other ranks to be stepped.
  for (ShardBucket& bucket : impl.buckets) {
    bool stepped = false;
    impl.error.keep([&] {
      if (!mirror) bucket.update_parts();
      const std::vector<torch::Tensor> gradients = bucket.gradients();
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        bucket.parts()[i].values.mutable_grad() = gradients[i];
      }
      follower_->base_step();
      stepped = true;
    });
    for (const ShardPart& part : bucket.parts()) part.values.mutable_grad().reset();
    if (stepped) impl.error.keep([&] { bucket.gather(); });
    stepped_all = stepped_all && stepped;
  }
  follower_->count.underway = !stepped_all;
  for (ShardBucket& bucket : impl.buckets) impl.error.keep([&] { bucket.finish(); });
  impl.end_reduction();
  impl.error.take();
  if (mirror) mirror->gathered();
  impl.context.mark_step();
  return loss;
}

double ParameterShards::clip_grad_norm(double max_norm, double norm_type) {
  if (!(norm_type > 0)) refuse_sharding(fmt::format("norm_type is {}, not positive", norm_type));
  Impl& impl = this->impl();
  const torch::NoGradGuard no_grad;
  impl.reduce_all();
  // The norm of all gradients is the norm of the norms of their parts.
  std::vector<torch::Tensor> norms{torch::zeros({1}, torch::kFloat64)};
  for (ShardBucket& bucket : impl.buckets) {
    impl.error.keep([&] {
      torch::Tensor gradient = bucket.gradient();
      gradient = gradient.to(torch::promote_types(gradient.scalar_type(), torch::kFloat64));
      if (gradient.numel() > 0) norms.push_back(gradient.norm(norm_type).cpu().view({1}));
    });
  }
  const torch::Tensor of_all =
      allgather(torch::cat(norms).norm(norm_type), {.name = impl.name + "/norm",
                                                    .process_set = impl.options.process_set,
                                                    .context = &impl.context});
  const double norm = of_all.norm(norm_type).item<double>();
  // This is the formula of torch::nn::utils::clip_grad_norm_. A norm that is not a number makes all
  // gradients so.
  const double scale = max_norm / (norm + 1e-6);
  if (!(scale >= 1)) {
    for (ShardBucket& bucket : impl.buckets) {
      impl.error.keep([&] { bucket.gradient().mul_(scale); });
    }
  }
  return norm;
}

bool ParameterShards::scale_gradients(double factor) {
  Impl& impl = this->impl();
  const torch::NoGradGuard no_grad;
  impl.reduce_all();
  torch::Tensor finite = torch::ones({1}, torch::kUInt8);
  for (ShardBucket& bucket : impl.buckets) {
    impl.error.keep([&] {
      const torch::Tensor gradient = bucket.gradient().mul_(factor);
      finite *= torch::isfinite(gradient).all().cpu();
    });
  }
  return impl.reduce(finite, "finite", ReduceOp::min).item<std::uint8_t>() != 0;
}

void ParameterShards::set_weight(double weight) {
  Impl& impl = this->impl();
  if (!impl.weight) refuse_sharding("set_weight() needs the option weighted");
  const std::lock_guard lock(impl.mutex);
  impl.weight->set(weight);
}

ScopedPause ParameterShards::no_sync() { return ScopedPause(impl().no_sync_depth); }

void ParameterShards::zero_grad() {
  Impl& impl = this->impl();
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
  impl.send_all();
  impl.end_reduction();
  impl.error.take();
}

void ParameterShards::save(const torch::optim::Optimizer& base,
                           torch::serialize::OutputArchive& archive, bool on_all_ranks) const {
  const Impl& impl = this->impl();
  save_sharded_state(impl.context, impl.options.process_set, impl.buckets, base, archive,
                     on_all_ranks);
}

void ParameterShards::load(torch::optim::Optimizer& base, torch::serialize::InputArchive& archive) {
  load_sharded_state(impl().buckets, base, archive);
  if (follower_->mirror) follower_->mirror->changed();
}

}  // namespace hvd::detail
