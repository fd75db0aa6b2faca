#include <cmath>
#include <deque>
#include <exception>
#include <mutex>
#include <unordered_set>

#include <fmt/format.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/gradient_reducer.hpp>
#include <hvd/torch/parameters.hpp>

#include "compare_ranks.hpp"
#include "digest.hpp"
#include "gradient_slot.hpp"

namespace hvd {

namespace {

[[noreturn]] void misuse(const std::string& message) {
  throw Error(Errc::invalid_argument, "DistributedOptimizer: " + message);
}

void check(const DistributedOptimizerOptions& options) {
  if (options.op != ReduceOp::average && options.op != ReduceOp::sum) {
    misuse(fmt::format("op is average or sum, not {}", to_string(options.op)));
  }
  if (options.backward_passes_per_step < 1) {
    misuse(fmt::format("backward_passes_per_step is {}, not positive",
                       options.backward_passes_per_step));
  }
  const double factor = options.gradient_predivide_factor;
  if (!std::isfinite(factor) || factor <= 0) {
    misuse(fmt::format("gradient_predivide_factor is {}, not positive", factor));
  }
  if (factor != 1.0 && options.op != ReduceOp::average) {
    misuse("gradient_predivide_factor needs the op average");
  }
}

std::size_t parameter_count(const torch::optim::Optimizer& optimizer) {
  std::size_t count = 0;
  for (const auto& group : optimizer.param_groups()) count += group.params().size();
  return count;
}

/// The optimizer's parameters with their names, in the order of the names.
NamedTensors parameters_of(const torch::optim::Optimizer& optimizer, const NamedTensors& named) {
  std::unordered_set<const c10::TensorImpl*> wanted;
  for (const auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      wanted.insert(parameter.unsafeGetTensorImpl());
    }
  }
  const NamedTensors distinct = named.distinct();
  std::unordered_set<std::string> names;
  std::vector<NamedTensors::Item> chosen;
  for (const auto& [name, tensor] : distinct.items()) {
    if (name.empty()) misuse("a parameter has an empty name");
    if (!names.insert(name).second) misuse(fmt::format("two parameters are named {}", name));
    if (wanted.erase(tensor.unsafeGetTensorImpl()) > 0) chosen.emplace_back(name, tensor);
  }
  if (!wanted.empty()) {
    misuse(fmt::format("{} parameters of the optimizer have no name", wanted.size()));
  }
  return chosen;
}

std::vector<NamedDigest> describe(const NamedTensors& parameters,
                                  const DistributedOptimizerOptions& options) {
  std::vector<NamedDigest> digests;
  for (const auto& [name, parameter] : parameters.items()) {
    Digest digest;
    digest.add(name);
    digest.add(static_cast<std::uint64_t>(parameter.scalar_type()));
    digest.add(parameter.requires_grad() ? 1 : 0);
    for (const auto size : parameter.sizes()) digest.add(static_cast<std::uint64_t>(size));
    digests.emplace_back("parameter " + name, digest.value());
  }
  Digest digest;
  digest.add(static_cast<std::uint64_t>(options.op));
  digest.add(static_cast<std::uint64_t>(options.backward_passes_per_step));
  digest.add(std::bit_cast<std::uint64_t>(options.gradient_predivide_factor));
  digest.add(options.broadcast_parameters ? 1 : 0);
  digest.add(options.name_prefix);
  digests.emplace_back("options", digest.value());
  return digests;
}

}  // namespace

struct GradientReducer::Impl final : GradientListener {
  Impl(torch::optim::Optimizer& wrapped, const DistributedOptimizerOptions& given)
      : optimizer(wrapped),
        options(given),
        context(given.context ? *given.context : hvd::context()) {
    reduction.op = options.op;
    reduction.prescale = 1.0 / options.gradient_predivide_factor;
    reduction.postscale = options.gradient_predivide_factor;
  }

  void on_gradient(std::size_t index) override;
  void submit(GradientSlot& slot, const torch::Tensor& gradient);
  void submit_without_backward(GradientSlot& slot);
  void check_untouched(const GradientSlot& slot);
  void finish(GradientSlot& slot);
  void synchronize();
  void remember(std::exception_ptr error) noexcept {
    if (!first_error) first_error = std::move(error);
  }
  template <class Function>
  void remembering(Function function) noexcept {
    try {
      function();
    } catch (...) {
      remember(std::current_exception());
    }
  }
  torch::Tensor reduce_loss(const torch::Tensor& loss);

  torch::optim::Optimizer& optimizer;
  DistributedOptimizerOptions options;
  Context& context;
  AllreduceOptions reduction;
  std::int64_t instance = 0;
  std::size_t known_parameters = 0;
  std::deque<GradientSlot> slots;  // hooks stay where they are

  std::mutex mutex;  // hooks of different devices run on different threads
  std::exception_ptr first_error;
  bool dirty = false;         // gradients have come since the last synchronisation
  bool synchronized = false;  // by the user, for the next step
  int skip_depth = 0;
  int no_sync_depth = 0;
};

void GradientReducer::Impl::on_gradient(std::size_t index) {
  if (no_sync_depth > 0) return;
  const std::lock_guard lock(mutex);
  GradientSlot& slot = slots[index];
  dirty = true;
  synchronized = false;
  if (slot.in_flight) {
    // Not an error of communication: it may leave backward(), and step() repeats it.
    remembering([&] {
      misuse(
          fmt::format("{} got a gradient from more than backward_passes_per_step = {} backward "
                      "passes before step(); use no_sync() for passes that are not to be sent",
                      slot.name, options.backward_passes_per_step));
    });
    std::rethrow_exception(first_error);
  }
  if (++slot.passes < options.backward_passes_per_step) return;
  remembering([&] { submit(slot, slot.parameter.grad()); });
}

void GradientReducer::Impl::submit(GradientSlot& slot, const torch::Tensor& gradient) {
  reduction.name = slot.collective;
  slot.work = allreduce_async_(context, gradient, reduction);
  slot.gradient = gradient;
  slot.version = gradient._version();
  slot.in_flight = true;
}

// An unused or frozen parameter, or fewer passes than planned: what there is, else zeros.
void GradientReducer::Impl::submit_without_backward(GradientSlot& slot) {
  torch::Tensor gradient = slot.parameter.grad();
  if (!gradient.defined()) {
    gradient = torch::zeros_like(slot.parameter.detach());
    if (slot.parameter.requires_grad()) slot.parameter.mutable_grad() = gradient;
  }
  submit(slot, gradient);
}

void GradientReducer::Impl::check_untouched(const GradientSlot& slot) {
  const torch::Tensor& gradient = slot.parameter.grad();
  const bool frozen_scratch = !gradient.defined() && !slot.parameter.requires_grad();
  if (frozen_scratch) return;
  if (!gradient.is_same(slot.gradient) || gradient._version() != slot.version) {
    misuse(
        fmt::format("the gradient of {} was changed, replaced or zeroed between backward() and "
                    "step(); call synchronize() first",
                    slot.name));
  }
}

void GradientReducer::Impl::finish(GradientSlot& slot) {
  slot.work.wait();
  // A frozen parameter that no rank has a gradient for stays without one, or momentum moved it.
  if (!slot.parameter.grad().defined() && !slot.parameter.requires_grad() &&
      slot.gradient.any().item<bool>()) {
    slot.parameter.mutable_grad() = slot.gradient;
  }
}

void GradientReducer::Impl::synchronize() {
  const torch::NoGradGuard no_grad;
  {
    const std::lock_guard lock(mutex);
    for (std::size_t index = 0; index < slots.size(); ++index) {
      GradientSlot& slot = slots[index];
      slot.takes_part = slot.takes_part || slot.parameter.requires_grad();
      if (!slot.takes_part) continue;
      remembering([&] {
        slot.hook.attach(slot.parameter, *this, index);
        if (!slot.in_flight) submit_without_backward(slot);
        check_untouched(slot);
      });
    }
    remembering([&] {
      if (parameter_count(optimizer) != known_parameters) {
        misuse("the optimizer got parameters after construction");
      }
    });
  }
  // Whatever went wrong here, the other ranks have got this rank's part, and nothing is still being
  // written when the error leaves.
  for (GradientSlot& slot : slots) {
    if (slot.in_flight) remembering([&] { finish(slot); });
    slot.in_flight = false;
    slot.passes = 0;
    slot.work = {};
    slot.gradient.reset();
  }
  dirty = false;
  if (first_error) std::rethrow_exception(std::exchange(first_error, nullptr));
}

torch::Tensor GradientReducer::Impl::reduce_loss(const torch::Tensor& loss) {
  if (!loss.defined()) misuse("the closure returned no loss");
  AllreduceOptions loss_options;
  loss_options.op = options.op;
  loss_options.name = fmt::format("{}/{}/loss", options.name_prefix, instance);
  return allreduce(context, loss, loss_options);
}

GradientReducer::GradientReducer(torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                                 const DistributedOptimizerOptions& options) {
  check(options);
  const NamedTensors chosen = parameters_of(optimizer, parameters);
  impl_ = std::make_unique<Impl>(optimizer, options);
  Impl& impl = *impl_;

  // Unique on rank 0: each construction submits something.
  const auto submitted = static_cast<std::int64_t>(impl.context.stats().submitted);
  const std::string difference =
      first_difference(impl.context, describe(chosen, options), "distributed_optimizer");
  if (!difference.empty()) {
    throw Error(Errc::mismatch, "DistributedOptimizer: not the same on all ranks: " + difference);
  }
  impl.instance =
      broadcast(impl.context, torch::tensor({submitted}), 0, "distributed_optimizer/instance")
          .item<std::int64_t>();
  impl.known_parameters = parameter_count(optimizer);

  for (const auto& [name, parameter] : chosen.items()) {
    GradientSlot& slot = impl.slots.emplace_back();
    slot.name = name;
    slot.collective = fmt::format("{}/{}/{}", options.name_prefix, impl.instance, name);
    slot.parameter = parameter;
    slot.takes_part = parameter.requires_grad();
    slot.hook.attach(parameter, impl, impl.slots.size() - 1);
  }
  if (options.broadcast_parameters) broadcast_parameters(impl.context, parameters);
}

GradientReducer::~GradientReducer() = default;

torch::Tensor GradientReducer::step(const BaseStep& base, LossClosure closure) {
  Impl& impl = *impl_;
  const bool synchronized = std::exchange(impl.synchronized, false);
  if (closure) {
    if (impl.skip_depth > 0) misuse("step() with a closure cannot skip the synchronisation");
    require_idle("step() with a closure");
    const torch::Tensor last = base([&impl, &closure] {
      const torch::Tensor loss = closure();
      impl.synchronize();
      return impl.reduce_loss(loss);
    });
    impl.context.mark_step();
    return last;
  }
  if (impl.skip_depth > 0) {
    if (impl.dirty) misuse("step() under skip_synchronize() needs synchronize() after backward()");
  } else {
    if (synchronized) misuse("after synchronize(), call step() under skip_synchronize()");
    impl.synchronize();
  }
  const torch::Tensor loss = base(nullptr);
  impl.context.mark_step();
  return loss;
}

void GradientReducer::synchronize() {
  impl_->synchronize();
  impl_->synchronized = true;
}

void GradientReducer::require_idle(const char* caller) const {
  for (const GradientSlot& slot : impl_->slots) {
    if (slot.in_flight) {
      misuse(
          fmt::format("{} while the gradient of {} is being reduced; call step() or "
                      "synchronize() first",
                      caller, slot.name));
    }
  }
}

ScopedPause GradientReducer::skip_synchronize() noexcept { return ScopedPause(impl_->skip_depth); }

ScopedPause GradientReducer::no_sync() noexcept { return ScopedPause(impl_->no_sync_depth); }

std::int64_t GradientReducer::instance() const noexcept { return impl_->instance; }

}  // namespace hvd
