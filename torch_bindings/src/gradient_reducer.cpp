#include <algorithm>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>

#include <fmt/format.h>

#include <hvd/core/log.hpp>
#include <hvd/hvd.hpp>
#include <hvd/torch/adasum.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/gradient_reducer.hpp>

#include "broadcast_tensors.hpp"
#include "device_event.hpp"
#include "first_step.hpp"
#include "gradient_home.hpp"
#include "gradient_setup.hpp"
#include "gradient_slot.hpp"
#include "tensor_traits.hpp"

namespace hvd {

struct GradientReducer::Impl final : GradientListener {
  /// Parameters that are submitted together.
  struct Group {
    std::string name;
    std::size_t size = 0;  ///< members that take part in this step
    std::vector<GradientSlot*> ready;
    std::vector<Submission> submissions;
  };

  Impl(torch::optim::Optimizer& wrapped, const DistributedOptimizerOptions& given,
       const NamedTensors& parameters);

  void on_gradient(std::size_t index, const torch::Tensor& incoming) override;
  void give(GradientSlot& slot, const torch::Tensor& incoming);
  void give_without_backward(GradientSlot& slot, double scale);
  void compare_first_gradients();
  [[nodiscard]] double scale_of_fewer_passes() const;
  [[nodiscard]] Submission submission_for(GradientSlot& slot);
  void give_sparse(GradientSlot& slot);
  void give_to_group(GradientSlot& slot, Submission submission);
  void count_groups();
  void check_untouched(const GradientSlot& slot);
  void finish(GradientSlot& slot);
  void finish_compressed();
  [[nodiscard]] GradientExchange exchange_of(const GradientSlot& slot) {
    return {context, slot.collective, options.process_set};
  }
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
  torch::Tensor step_with_adasum(const BaseStep& base, LossClosure closure);

  torch::optim::Optimizer& optimizer;
  const DistributedOptimizerOptions options;
  Context& context;
  std::int64_t instance = 0;
  std::size_t known_parameters = 0;
  std::optional<GradientHome> home;
  std::vector<Group> groups;
  std::deque<GradientSlot> slots;       // hooks stay where they are
  std::optional<FirstStep> first_step;  // until its end, where there are others to tell

  std::mutex mutex;  // hooks of different devices run on different threads
  std::exception_ptr first_error;
  bool dirty = false;         // gradients have come since the last synchronisation
  bool synchronized = false;  // by the user, for the next step
  int skip_depth = 0;
  int no_sync_depth = 0;
};

GradientReducer::Impl::Impl(torch::optim::Optimizer& wrapped,
                            const DistributedOptimizerOptions& given,
                            const NamedTensors& parameters)
    : optimizer(wrapped),
      options(given),
      context(given.context ? *given.context : hvd::context()),
      known_parameters(parameter_count(wrapped)) {
  // Unique on the rank that decides: each construction submits something.
  const auto submitted = static_cast<std::int64_t>(context.stats().submitted);
  const std::string difference = first_difference(context, describe(parameters, options),
                                                  "distributed_optimizer", options.process_set);
  if (!difference.empty()) {
    throw Error(Errc::mismatch, "DistributedOptimizer: not the same on all ranks: " + difference);
  }
  const int first = context.ranks_of(options.process_set).front();
  instance =
      broadcast(context, torch::tensor({submitted}), first,
                {.name = "distributed_optimizer/instance", .process_set = options.process_set})
          .item<std::int64_t>();

  home.emplace(options.memory, context, parameters.tensors());
  const std::vector<int> group_of = groups_of(parameters, options);
  for (const auto& [name, parameter] : parameters.items()) {
    GradientSlot& slot = slots.emplace_back();
    slot.name = name;
    slot.collective = fmt::format("{}/{}/{}", options.name_prefix, instance, name);
    slot.parameter = parameter;
    slot.group = group_of[slots.size() - 1];
    if (options.compressor) slot.compressor = options.compressor->make(parameter);
    while (std::ssize(groups) <= slot.group) {
      groups.emplace_back().name =
          fmt::format("{}/{}/group {}", options.name_prefix, instance, groups.size());
    }
    slot.takes_part = parameter.requires_grad();
    if (!options.adasum) slot.hook.attach(parameter, *this, slots.size() - 1);
  }
  count_groups();
  if (!options.adasum && context.ranks_of(options.process_set).size() > 1) {
    first_step.emplace(context, options.process_set, slots.size());
  }
}

/// A parameter that begins to take part is in its group from the next step on.
void GradientReducer::Impl::count_groups() {
  for (Group& group : groups) group.size = 0;
  for (const GradientSlot& slot : slots) {
    if (slot.group >= 0 && slot.takes_part) ++groups[static_cast<std::size_t>(slot.group)].size;
  }
}

void GradientReducer::Impl::on_gradient(std::size_t index, const torch::Tensor& incoming) {
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
  remembering([&] {
    home->use_here();
    if (first_step) first_step->saw(index, slot.parameter.grad());
    give(slot, incoming);
  });
}

void GradientReducer::Impl::give(GradientSlot& slot, const torch::Tensor& incoming) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& gradient = slot.parameter.grad();
  if (gradient.is_sparse()) {
    if (!options.sparse_as_dense) return give_sparse(slot);
    slot.parameter.mutable_grad() = gradient.to_dense();
  }
  require_supported(gradient);
  home->settle(slot.parameter, incoming);
  slot.gradient = gradient;
  if (slot.compressor) {
    slot.compressor->begin(exchange_of(slot), plain_alias(gradient));
    slot.compressing = true;
  } else {
    Submission submission = submission_for(slot);
    if (slot.group < 0) {
      slot.work = context.submit(std::move(submission));
    } else {
      give_to_group(slot, std::move(submission));
    }
  }
  slot.in_flight = true;
  note_overwritten(gradient);
  slot.version = gradient._version();
}

void GradientReducer::Impl::give_sparse(GradientSlot& slot) {
  slot.is_sparse = true;
  slot.gradient = slot.parameter.grad();
  AllreduceOptions reduction{.name = slot.collective, .op = options.op};
  reduction.process_set = options.process_set;
  if (options.average_accumulated) reduction.postscale = 1.0 / options.backward_passes_per_step;
  slot.sparse_work = sparse_allreduce_async(context, slot.gradient, reduction);
  slot.in_flight = true;
  slot.version = slot.gradient._version();
}

void GradientReducer::Impl::give_to_group(GradientSlot& slot, Submission submission) {
  Group& group = groups[static_cast<std::size_t>(slot.group)];
  group.ready.push_back(&slot);
  group.submissions.push_back(std::move(submission));
  if (group.ready.size() < group.size) return;
  const std::vector<GradientSlot*> members = std::exchange(group.ready, {});
  const std::vector<Work> works =
      context.submit_group(std::exchange(group.submissions, {}), group.name);
  for (std::size_t i = 0; i < members.size(); ++i) members[i]->work = works[i];
}

Submission GradientReducer::Impl::submission_for(GradientSlot& slot) {
  const torch::Tensor& gradient = slot.gradient;
  slot.row = elements_of(gradient);
  const bool wide =
      gradient.scalar_type() == torch::kFloat32 || gradient.scalar_type() == torch::kFloat64;
  slot.cast = wide && options.compression != Compression::none;
  if (slot.cast) {
    const auto dtype =
        options.compression == Compression::fp16 ? torch::kFloat16 : torch::kBFloat16;
    slot.row = home->scratch(gradient.numel(), gradient.options().dtype(dtype)).copy_(slot.row);
  }
  Submission submission;
  Request& request = submission.request;
  request.name = slot.collective;
  request.dtype = dtype_of(slot.row);
  request.op = options.op;
  request.device = engine_device_of(gradient);
  request.shape = shape_of(slot.parameter);
  request.process_set = options.process_set;
  request.prescale = 1.0 / options.gradient_predivide_factor;
  request.postscale = options.gradient_predivide_factor;
  if (options.average_accumulated) request.postscale /= options.backward_passes_per_step;
  submission.input = submission.output = gradient.numel() == 0 ? nullptr : slot.row.data_ptr();
  submission.keep_alive = std::make_shared<torch::Tensor>(slot.row);
  submission.ready = record_device_event(gradient);
  return submission;
}

// An unused or frozen parameter, or fewer passes than planned: what there is, else zeros.
void GradientReducer::Impl::give_without_backward(GradientSlot& slot, double scale) {
  const bool has_none = !slot.parameter.grad().defined();
  // Not in place: another parameter's gradient may have the same memory.
  if (!has_none && scale != 1) slot.parameter.mutable_grad() = slot.parameter.grad() * scale;
  if (has_none && slot.is_sparse) {
    std::vector<std::int64_t> no_rows = slot.parameter.sizes().vec();
    no_rows.front() = 0;
    const torch::TensorOptions dense = slot.parameter.options().requires_grad(false);
    slot.parameter.mutable_grad() =
        torch::sparse_coo_tensor(torch::empty({1, 0}, dense.dtype(torch::kInt64)),
                                 torch::empty(no_rows, dense), slot.parameter.sizes());
  } else if (has_none) {
    slot.parameter.mutable_grad() = home->zeros_for(slot.parameter);
  }
  give(slot, {});
  // What nobody has a gradient for stays without one, or momentum moved it.
  if (has_none && !slot.parameter.requires_grad()) slot.parameter.mutable_grad().reset();
}

/// What makes an average over the planned passes one over those that there were, as at the end of
/// an epoch. A parameter that not all of them used counts with zeros in the others.
double GradientReducer::Impl::scale_of_fewer_passes() const {
  int passes = 0;
  for (const GradientSlot& slot : slots) passes = std::max(passes, slot.passes);
  const int planned = options.backward_passes_per_step;
  if (!options.average_accumulated || passes == 0 || passes >= planned) return 1;
  return static_cast<double>(planned) / passes;
}

/// In the first step: what can only be seen by comparing.
void GradientReducer::Impl::compare_first_gradients() {
  for (std::size_t index = 0; index < slots.size(); ++index) {
    const torch::Tensor& gradient = slots[index].parameter.grad();
    if (!slots[index].in_flight && gradient.defined()) first_step->saw(index, gradient);
  }
  first_step->exchange(fmt::format("{}/{}/first step", options.name_prefix, instance));
  for (std::size_t index = 0; index < slots.size(); ++index) {
    GradientSlot& slot = slots[index];
    slot.is_sparse = slot.is_sparse || (first_step->is_sparse(index) && !options.sparse_as_dense);
  }
  const bool speaks = context.rank() == context.ranks_of(options.process_set).front();
  if (!speaks || !first_step->all_are_equal()) return;
  log(LogLevel::warn, context.rank(),
      "DistributedOptimizer: all ranks had the same gradients in the first step, bit by bit. Do "
      "they read the same data? Each needs a shard of its own, as of hvd::DistributedSampler");
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
  if (slot.sparse_work) {
    slot.parameter.mutable_grad() = slot.sparse_work->wait();
    return;
  }
  slot.work.wait();
  if (slot.cast) elements_of(slot.gradient).copy_(slot.row);
  if (!slot.parameter.grad().defined() && !slot.parameter.requires_grad() &&
      slot.gradient.any().item<bool>()) {
    slot.parameter.mutable_grad() = slot.gradient;
  }
}

// Round by round, so that the messages of one parameter hide those of the others.
void GradientReducer::Impl::finish_compressed() {
  for (bool more = true; more;) {
    more = false;
    for (GradientSlot& slot : slots) {
      if (!slot.compressing) continue;
      bool done = true;  // also when it throws
      remembering([&] {
        const torch::Tensor gradient = plain_alias(slot.gradient);
        const GradientExchange exchange = exchange_of(slot);
        done = slot.compressor->go_on(exchange, gradient);
        if (!done) return;
        if (options.op == ReduceOp::sum) gradient.mul_(exchange.ranks());
        if (options.average_accumulated) gradient.div_(options.backward_passes_per_step);
      });
      slot.compressing = !done;
      more = more || !done;
    }
  }
}

void GradientReducer::Impl::synchronize() {
  const torch::NoGradGuard no_grad;
  if (first_step) {
    remembering([&] { compare_first_gradients(); });
    first_step.reset();
  }
  {
    const std::lock_guard lock(mutex);
    const double scale = scale_of_fewer_passes();
    for (std::size_t index = 0; index < slots.size(); ++index) {
      GradientSlot& slot = slots[index];
      const int group = slot.group;
      if (!slot.takes_part && slot.parameter.requires_grad()) {
        slot.takes_part = true;
        slot.group = -1;
      }
      if (slot.takes_part) {
        remembering([&] {
          slot.hook.attach(slot.parameter, *this, index);
          if (!slot.in_flight) give_without_backward(slot, scale);
          check_untouched(slot);
        });
      }
      slot.group = group;
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
    if (slot.work.valid() || slot.sparse_work) remembering([&] { finish(slot); });
  }
  finish_compressed();
  for (GradientSlot& slot : slots) {
    slot.in_flight = false;
    slot.passes = 0;
    slot.work = {};
    slot.sparse_work.reset();
    slot.gradient.reset();
    slot.row.reset();
  }
  for (Group& group : groups) {
    group.ready.clear();
    group.submissions.clear();
  }
  count_groups();
  dirty = false;
  if (first_error) std::rethrow_exception(std::exchange(first_error, nullptr));
}

torch::Tensor GradientReducer::Impl::reduce_loss(const torch::Tensor& loss) {
  if (!loss.defined()) misuse("the closure returned no loss");
  AllreduceOptions loss_options;
  loss_options.op = options.op;
  loss_options.name = fmt::format("{}/{}/loss", options.name_prefix, instance);
  loss_options.process_set = options.process_set;
  return allreduce(context, loss.detach(), loss_options);
}

torch::Tensor GradientReducer::Impl::step_with_adasum(const BaseStep& base, LossClosure closure) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> before;
  for (const GradientSlot& slot : slots) {
    if (!slot.parameter.requires_grad()) continue;
    parameters.push_back(slot.parameter.detach());
    before.push_back(slot.parameter.detach().clone());
  }
  torch::Tensor loss = base(std::move(closure));
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= before[i];
  adasum_(context, parameters,
          {.name = fmt::format("{}/{}/adasum", options.name_prefix, instance),
           .process_set = options.process_set});
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] += before[i];
  return loss;
}

GradientReducer::GradientReducer(torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                                 const DistributedOptimizerOptions& options) {
  check(options);
  impl_ = std::make_unique<Impl>(optimizer, options,
                                 parameters_of(optimizer.param_groups(), parameters));
  if (options.broadcast_parameters) {
    const int first = impl_->context.ranks_of(options.process_set).front();
    broadcast_tensors(impl_->context, parameters.distinct(), "parameter/", first,
                      options.process_set);
  }
}

GradientReducer::~GradientReducer() = default;

torch::Tensor GradientReducer::step(const BaseStep& base, LossClosure closure) {
  Impl& impl = *impl_;
  if (impl.options.adasum) {
    const torch::Tensor loss = impl.step_with_adasum(base, std::move(closure));
    impl.context.mark_step();
    return loss;
  }
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
  if (impl_->options.adasum) misuse("with adasum there is nothing to synchronize before step()");
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

const GradientCounters& GradientReducer::gradient_counters() const noexcept {
  return impl_->home->counters();
}

std::int64_t GradientReducer::instance() const noexcept { return impl_->instance; }

}  // namespace hvd
