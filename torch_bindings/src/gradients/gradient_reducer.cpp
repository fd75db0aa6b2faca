#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <hvd/core/log.hpp>
#include <hvd/hvd.hpp>
#include <hvd/torch/adasum.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/wrapped_optimizer.hpp>

#include "collectives/device_event.hpp"
#include "gradients/gradient_reducer_impl.hpp"
#include "gradients/reducer_follower.hpp"
#include "state/digest.hpp"

namespace hvd::detail {

namespace {

/// Returns a number that changes when an optimizer steps the parameters. LibTorch's SGD does not
/// count its changes in the tensors' versions, so some elements are part of it too.
std::uint64_t fingerprint_of(const std::deque<GradientSlot>& slots) {
  Digest digest;
  for (const GradientSlot& slot : slots) {
    digest.add(static_cast<std::uint64_t>(slot.parameter._version()));
    digest.add_corners(slot.parameter);
  }
  return digest.value();
}

/// Throws like `require_no_capture`. Each question is a call of the driver, so this asks once for
/// all gradients of a backward pass that come one after another on the same stream.
void require_pass_without_capture(const torch::Tensor& parameter) {
  if (!parameter.is_cuda()) return;
  thread_local int last_pass = -1;
  thread_local std::optional<c10::Stream> last_stream;
  const int pass = torch::autograd::get_current_graph_task_id();
  const c10::Stream stream = current_stream(parameter);
  if (pass >= 0 && pass == last_pass && stream == last_stream) return;
  require_no_capture(parameter, "the reduction of gradients");
  last_pass = pass;
  last_stream = stream;
}

}  // namespace

GradientReducer::Impl::Impl(std::string_view given_owner, const std::string& kind,
                            const DistributedOptimizerOptions& given,
                            const NamedTensors& parameters, StepCount& given_count)
    : owner(given_owner),
      options(with_op_of_shares(given)),
      context(context_of(given)),
      count(given_count),
      waits(may_order(context)) {
  const std::vector<NamedDigest> each =
      describe_parameters(parameters, options);  // refuses bad groups
  // Options come first. All ranks have the same number of them, so the same ones are compared even
  // if the ranks differ in their parameters.
  std::vector<NamedDigest> own = describe_options(options);
  own.insert(own.end(), each.begin(), each.end());
  prefix =
      agree_on_optimizer(context, std::move(own), options.process_set, kind, options.name_prefix);

  placement.emplace(options.memory, context, parameters.tensors());
  const std::vector<int> group_of = groups_of(parameters, options);
  for (const auto& [name, parameter] : parameters.items()) {
    GradientSlot& slot = slots.emplace_back();
    slot.name = name;
    slot.collective = fmt::format("{}/{}", prefix, name);
    slot.parameter = parameter;
    slot.group = group_of[slots.size() - 1];
    if (options.compressor) slot.compressor = options.compressor->make(parameter);
    slot.compressed = parameter.options();
    while (std::ssize(groups) <= slot.group) {
      groups.emplace_back().name = fmt::format("{}/group {}", prefix, groups.size());
    }
    slot.takes_part = parameter.requires_grad();
    if (!options.adasum) slot.hook.attach(parameter, *this, slots.size() - 1);
  }
  count_groups();
  if (options.weighted) weight.emplace(context, options.process_set, prefix, owner);
  if (!options.adasum && context.ranks_of(options.process_set).size() > 1) {
    layouts.emplace(context, options.process_set, slots.size());
  }
  // An optimizer tells the agreement of its steps. Those of a module's optimizers are seen in its
  // parameters only. The first pass counts as a pass after a step: if
  // this rank has joined without data, the other ranks have already made steps.
  if (owner != kDataParallel) steps = 1;
  const bool compares_corners = owner == kDataParallel && options.broadcast_parameters;
  std::vector<torch::Tensor> tensors;
  for (const GradientSlot& slot : slots) tensors.push_back(slot.parameter);
  agreement.emplace(context, options.process_set, std::move(tensors), compares_corners,
                    [this](std::size_t length) {
                      return placement->empty_row(static_cast<std::int64_t>(length),
                                                  torch::kFloat32);
                    });
}

/// In an elastic job the program may go on after a pass that did not end.
GradientReducer::Impl::~Impl() {
  for (GradientSlot& slot : slots) static_cast<void>(put_back_kept(slot));
}

/// Counts the members of each group that take part in the next reduction. A parameter that begins
/// to take part belongs to its group from the next step on.
void GradientReducer::Impl::count_groups() {
  for (Group& group : groups) {
    group.size = 0;
    group.ready.clear();
  }
  for (GradientSlot& slot : slots) {
    slot.joins_group = slot.group >= 0 && slot.takes_part && !slot.is_sparse;
    if (slot.joins_group) ++groups[static_cast<std::size_t>(slot.group)].size;
  }
}

/// A gradient that has been reduced must not be reduced again together with what this pass adds. It
/// is set aside, and added when the reduction of this pass ends.
void GradientReducer::Impl::before_gradient(std::size_t index) {
  const std::lock_guard lock(mutex);
  GradientSlot& slot = slots[index];
  // Nothing has been sent yet, so the job can go on without the graph.
  if (no_sync_depth == 0) require_pass_without_capture(slot.parameter);
  if (options.step_in_backward && reductions > 0 && !error) {
    refuse_pass("with step_in_backward, each backward pass steps; call step() after each");
  }
  if (!slot.grad_is_reduced) return;
  torch::Tensor& gradient = slot.parameter.mutable_grad();
  const bool pass_is_sent = no_sync_depth == 0 && options.backward_passes_per_step == 1;
  // A gradient of zeros, as after `zero_grad(false)`, stays in place. Before a pass that is sent,
  // this is not checked on a device, because the host would have to wait.
  const bool looks = gradient.defined() && (gradient.is_cpu() || !pass_is_sent);
  const torch::Tensor values = looks && gradient.is_sparse() ? gradient._values() : gradient;
  const bool is_zero = !gradient.defined() || (looks && !values.any().item<bool>());
  if (!is_zero && pass_is_sent) {
    slot.set_aside = std::exchange(gradient, {});
  } else if (!is_zero) {
    refuse_pass(fmt::format(
        "a backward pass {} adds to the gradient of {}, which has been reduced; call step() or "
        "zero_grad() first{}",
        no_sync_depth > 0 ? "under no_sync()" : "beyond backward_passes_per_step", slot.name,
        parameters_changed()));
  }
  slot.grad_is_reduced = false;
}

void GradientReducer::Impl::on_gradient(std::size_t index, const torch::Tensor& incoming) {
  const std::lock_guard lock(mutex);
  begin_pass();
  if (no_sync_depth > 0) return;
  GradientSlot& slot = slots[index];
  if (!std::exchange(has_unsent_gradients, true)) note_wrapped_steps();
  // `pass_end` is alive if the pass in which the first gradient came still runs.
  if (slot.in_flight && (missing_after_nested || !pass_end.expired())) {
    refuse_pass(two_passes_in_one(slot));
  }
  if (slot.in_flight) {
    refuse_pass(
        fmt::format("{} got a gradient from more than backward_passes_per_step = {} backward "
                    "passes before step(); use no_sync() for passes that are not to be sent{}",
                    slot.name, options.backward_passes_per_step, parameters_changed()));
  }
  if (++slot.passes < options.backward_passes_per_step) return;
  slot.takes_part = true;
  error.keep([&] {
    agreement->read_parameters();
    placement->use_on_this_thread();
    if (layouts) layouts->add(index, slot.parameter.grad());
    submit(slot, incoming);
  });
  // After a rank was lost, the rest of an elastic job's pass would be in vain.
  if (is_elastic(context)) error.rethrow();
  if (options.step_in_backward) step_reduced();
  if (options.wait_in_backward) expect_end_of_pass();
}

/// Steps the parameters whose gradients are reduced by now. No node of the graph needs their values
/// any more, because autograd accumulates a gradient after all nodes that use the parameter have
/// run. Gradients that are compressed or sparse, and those that no hook has submitted, wait for the
/// end of the pass.
void GradientReducer::Impl::step_reduced() {
  const torch::NoGradGuard no_grad;
  std::vector<GradientSlot*> done;
  for (GradientSlot& slot : slots) {
    if (!slot.work.valid() || !slot.work.done()) continue;
    error.keep([&] {
      finish(slot);
      check_untouched(slot);
      done.push_back(&slot);
    });
    slot.work = {};
  }
  step_only(done);
}

/// Steps some parameters and frees their gradients. The base sees no others.
void GradientReducer::Impl::step_only(const std::vector<GradientSlot*>& chosen) {
  if (chosen.empty() || error) return;
  std::unordered_set<const c10::TensorImpl*> wanted;
  for (const GradientSlot* slot : chosen) wanted.insert(slot->parameter.unsafeGetTensorImpl());
  std::vector<std::pair<std::vector<torch::Tensor>*, std::vector<torch::Tensor>>> saved;
  const auto hide_others = [&](torch::optim::Optimizer& in) {
    for (auto& group : in.param_groups()) {
      std::vector<torch::Tensor> seen;
      for (const torch::Tensor& parameter : group.params()) {
        if (wanted.contains(parameter.unsafeGetTensorImpl())) seen.push_back(parameter);
      }
      saved.emplace_back(&group.params(), std::move(seen));
      saved.back().first->swap(saved.back().second);
    }
  };
  count.underway = true;
  error.keep([&] {
    hide_others(*optimizer);
    if (&unwrapped(*optimizer) != optimizer) hide_others(unwrapped(*optimizer));
    base(nullptr);
  });
  for (auto& [parameters, all] : saved) parameters->swap(all);
  for (GradientSlot* const slot : chosen) {
    slot->is_stepped = true;
    slot->grad_is_reduced = false;
    slot->parameter.mutable_grad().reset();
    slot->gradient.reset();
    slot->kept.reset();
    slot->converted.reset();
  }
}

void GradientReducer::Impl::begin_pass() {
  // The pass that failed has thrown its error. Its step is over, because other ranks may have
  // continued.
  if (is_reduced && error) begin_step();
  is_reduced = false;
}

/// Forgets the step that has ended or failed. The passes of a module are no steps: ranks may differ
/// in how many of them have failed.
void GradientReducer::Impl::begin_step() {
  error.clear();
  is_reduced = false;
  reductions = 0;
  if (!module) ++steps;
}

/// Keeps the error, so that `step()` throws it again, and throws it out of `backward()` at once.
/// Errors of communication leave `backward()` only at the end of the pass.
void GradientReducer::Impl::refuse_pass(const std::string& message) {
  error.keep([&] { misuse(message); });
  misuse(message);
}

/// Called when the first gradient of a pass arrives. With the default options a program that steps
/// the wrapped optimizer trains correctly, but hvd counts no steps. One change of the parameters
/// without a step() is no sign of it, since sharpness-aware minimization makes one in each step.
void GradientReducer::Impl::note_wrapped_steps() {
  if (!optimizer || &unwrapped(*optimizer) == optimizer) return;
  constexpr int kMany = 8;  // more than a program makes between two calls of step()
  if (reductions == kMany && context.rank() == context.ranks_of(options.process_set).front()) {
    if (const std::string changed = parameters_changed(); !changed.empty()) {
      log(LogLevel::warn, context.rank(),
          fmt::format("DistributedOptimizer: {} backward passes were reduced without a step(){}",
                      reductions, changed));
    }
  }
  fingerprint_at_pass = fingerprint_of(slots);
}

/// Returns, for the end of a message, that the parameters have changed since the last pass began,
/// or an empty text. It is empty when no optimizer is wrapped, since then only `step()` steps.
std::string GradientReducer::Impl::parameters_changed() const {
  if (!optimizer || &unwrapped(*optimizer) == optimizer || options.step_in_backward ||
      fingerprint_of(slots) == fingerprint_at_pass)
    return {};
  return ". The parameters have changed since the backward pass: if the program calls step() of "
         "the wrapped optimizer, let it call step() of the DistributedOptimizer";
}

/// Queues `end_pass` with autograd's engine, once per pass. The engine runs callbacks after the
/// last hook of the pass, on the streams of the caller of backward(), which throws what they throw.
/// A pass that throws drops its callbacks.
void GradientReducer::Impl::expect_end_of_pass() {
  if (!pass_end.expired()) return;
  const auto queued = std::make_shared<char>();
  pass_end = queued;
  torch::autograd::Engine::get_default_engine().queue_callback([this, queued] { end_pass(); });
}

/// Submits the missing gradients, waits for all in a second callback, and throws in a third. A
/// callback that is queued by another one runs after all that are queued already. So this rank
/// waits only after all optimizers of the pass have submitted everything. Otherwise ranks could
/// wait for each other for ever, because the callbacks of the optimizers may run in another order
/// on other ranks. It throws only after all optimizers have waited, because the engine calls no
/// further callback after one that throws.
void GradientReducer::Impl::end_pass() {
  auto& engine = torch::autograd::Engine::get_default_engine();
  {
    const std::lock_guard lock(mutex);
    pass_end.reset();
    const auto missing = std::find_if(slots.begin(), slots.end(), [](const GradientSlot& slot) {
      return slot.takes_part && !slot.in_flight;
    });
    // When a nested pass ends, the outer one is still evaluating the node that called backward().
    // The outer pass may have gradients for the other parameters; its hooks queue this callback
    // again.
    const bool nested = torch::autograd::get_current_node() != nullptr;
    missing_after_nested = nested && missing != slots.end() ? &*missing : nullptr;
    if (missing_after_nested) return;
  }
  start_layout_exchange();
  engine.queue_callback([this, &engine] {
    submit_missing();
    engine.queue_callback([this, &engine] {
      finish_reduction();
      if (error) engine.queue_callback([this] { error.rethrow(); });
    });
  });
}

/// Describes a pass all of whose gradients came from passes inside it, which did not wait for them.
std::string GradientReducer::Impl::nested_only() const {
  return fmt::format(
      "the last backward pass with gradients ran inside another one, and {} got none; call "
      "synchronize() between backward() and step()",
      missing_after_nested->name);
}

/// Describes a second gradient before the end of a pass in which another pass ran. After an inner
/// pass that left parameters out it is unknown whether the outer pass has ended.
std::string GradientReducer::Impl::two_passes_in_one(const GradientSlot& slot) const {
  const std::string_view object = module ? "parallel" : "optimizer";
  std::string text = fmt::format(
      "{0} got gradients from two passes inside one backward(), as a layer does in two "
      "checkpointed segments. To reduce their sum, write {{ auto pause = {1}.no_sync(); "
      "loss.backward(); }} {1}.synchronize();",
      slot.name, object);
  if (missing_after_nested) {
    text += fmt::format(
        " If they are from two calls of backward(), call synchronize() after each, because {} got "
        "none",
        missing_after_nested->name);
  }
  return text;
}

void GradientReducer::Impl::synchronize() {
  if (is_reduced) return;
  start_layout_exchange();
  submit_missing();
  finish_reduction();
}

/// Synchronizes, ends the step, and throws the first error of the step.
void GradientReducer::Impl::finish_step() {
  if (missing_after_nested) error.keep([&] { misuse(nested_only()); });
  synchronize();
  error.keep([&] { waits.check(); });
  end_step();
}

void GradientReducer::Impl::end_step() {
  FirstError first = std::move(error);
  begin_step();
  for (GradientSlot& slot : slots) slot.grad_is_reduced = false;
  first.take();
}

torch::Tensor GradientReducer::Impl::reduce_loss(const torch::Tensor& loss) {
  if (!loss.defined()) misuse("the closure returned no loss");
  torch::Tensor mine = loss.detach();
  if (weight) mine = scale_(mine.clone(), weight->last_share());
  return allreduce(mine, {.name = prefix + "/loss",
                          .op = options.op,
                          .process_set = options.process_set,
                          .context = &context});
}

/// When the reduction fails, the parameters are as before the step, and so alike on all ranks. The
/// state of the base has made the step.
torch::Tensor GradientReducer::Impl::step_with_adasum(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> before;
  for (GradientSlot& slot : slots) {
    // The base may still move a parameter that has frozen, as momentum does.
    slot.takes_part = slot.takes_part || slot.parameter.requires_grad();
    if (!slot.takes_part) continue;
    parameters.push_back(slot.parameter.detach());
    before.push_back(slot.parameter.detach().clone());
  }
  torch::Tensor loss = base(std::move(closure));
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= before[i];
  try {
    adasum_(parameters,
            {.name = prefix + "/adasum", .process_set = options.process_set, .context = &context});
  } catch (...) {
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(before[i]);
    throw;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] += before[i];
  return loss;
}

void GradientReducer::follow(const DistributedOptimizerOptions& options, Follower::Make make,
                             const NamedTensors& refused) {
  steps_at_once_ = steps_at_once_ && !options.step_in_backward && !options.adasum;
  follower_ = std::make_unique<Follower>(options, std::move(make), refused);
}

GradientReducer::Impl& GradientReducer::impl() const {
  if (!follower_->impl) static_cast<void>(context());  // throws
  if (!follower_->impl) {
    throw Error(Errc::not_initialized, "an optimizer was used after the generation of its context");
  }
  return *follower_->impl;
}

GradientReducer::GradientReducer(torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                                 const DistributedOptimizerOptions& options, BaseStep base) {
  check_options(options, kDistributedOptimizer);
  if (options.step_in_backward && kind_of(optimizer) == "LBFGS") {
    misuse("step_in_backward needs an optimizer that steps each parameter by itself, not LBFGS");
  }
  // LBFGS changes the parameters between the evaluations of its closure, and another class may.
  steps_at_once_ = kind_of(optimizer) != "LBFGS" && kind_of(optimizer) != "another class";
  follow(options, [this, &optimizer, parameters, options, base = std::move(base)](bool broadcasts) {
    auto impl = std::make_unique<Impl>(
        kDistributedOptimizer, fmt::format("{} of {}", kDistributedOptimizer, kind_of(optimizer)),
        options, parameters_of(optimizer.param_groups(), parameters), count_);
    impl->optimizer = &optimizer;
    impl->base = base;
    impl->known_parameters = parameter_count(optimizer);
    if (options.broadcast_parameters && broadcasts) impl->broadcast(parameters);
    return impl;
  });
}

GradientReducer::GradientReducer(const ModuleTensors& module,
                                 const DistributedOptimizerOptions& options) {
  check_options(options, kDataParallel);
  if (options.adasum) misuse("adasum needs DistributedOptimizer", kDataParallel);
  if (options.step_in_backward) {
    misuse("step_in_backward needs DistributedOptimizer", kDataParallel);
  }
  follow(
      options,
      [this, module, options](bool broadcasts) {
        auto impl =
            std::make_unique<Impl>(kDataParallel, std::string(kDataParallel), options,
                                   checked_parameters(module.parameters(), kDataParallel), count_);
        impl->module = module;
        impl->module_check.emplace([of = impl.get()] { of->check_module_after_pass(); });
        if (options.broadcast_parameters && broadcasts) {
          impl->broadcast(module.parameters());
          impl->broadcast(module.buffers());
        }
        return impl;
      },
      module.parameters());
}

void GradientReducer::Impl::broadcast(const NamedTensors& tensors) {
  broadcast_tensors(context, tensors.distinct(), "parameter/",
                    context.ranks_of(options.process_set).front(), options.process_set);
}

GradientReducer::~GradientReducer() = default;

torch::Tensor GradientReducer::step(LossClosure closure) {
  Impl& impl = this->impl();
  const auto stepped = [this, &impl](torch::Tensor loss) {
    count_.underway = false;
    ++count_.completed;
    impl.context.mark_step();
    return loss;
  };
  if (impl.options.adasum) {
    count_.underway = true;
    return stepped(impl.step_with_adasum(std::move(closure)));
  }
  if (closure) {
    require_step_after_backward("step() with a closure");
    if (impl.skip_depth > 0) impl.misuse("step() with a closure cannot skip the synchronisation");
    require_idle("step() with a closure");
    count_.underway = !steps_at_once_;
    return stepped(impl.base([&impl, &closure] {
      const torch::Tensor loss = closure();
      impl.finish_step();
      return impl.reduce_loss(loss);
    }));
  }
  if (impl.skip_depth > 0) {
    if (impl.has_unsent_gradients)
      impl.misuse("step() under skip_synchronize() needs synchronize() after backward()");
    impl.end_step();
  } else {
    impl.finish_step();
  }
  return stepped(impl.options.step_in_backward ? torch::Tensor() : impl.base(nullptr));
}

void GradientReducer::synchronize() {
  if (impl().options.adasum)
    impl().misuse("with adasum there is nothing to synchronize before step()");
  impl().synchronize();
  if (impl().error) impl().end_step();
}

void GradientReducer::finish_pass() {
  synchronize();
  impl().is_reduced = false;
}

void GradientReducer::set_weight(double weight) {
  Impl& impl = this->impl();
  if (!impl.weight) impl.misuse("set_weight() needs the option weighted");
  const std::lock_guard lock(impl.mutex);
  impl.weight->set(weight);
  impl.begin_pass();  // a rank whose pass uses no parameter takes part in step()
}

void GradientReducer::skip_step() { impl().end_step(); }

void GradientReducer::forget_failed_step() {
  if (!impl().is_reduced || !impl().error) return;
  impl().error.clear();
  impl().end_step();
}

void GradientReducer::require_idle(const char* caller) const {
  for (const GradientSlot& slot : impl().slots) {
    if (slot.in_flight) {
      impl().misuse(
          fmt::format("{} while the gradient of {} is being reduced; call step() or "
                      "synchronize() first{}",
                      caller, slot.name, impl().parameters_changed()));
    }
  }
}

void GradientReducer::require_step_after_backward(const char* caller) const {
  if (!impl().options.step_in_backward) return;
  impl().misuse(
      fmt::format("{} cannot be used with step_in_backward, because the backward pass "
                  "has stepped the parameters",
                  caller));
}

ScopedPause GradientReducer::skip_synchronize() { return ScopedPause(impl().skip_depth); }

ScopedPause GradientReducer::no_sync() { return ScopedPause(impl().no_sync_depth); }

const GradientCounters& GradientReducer::gradient_counters() const {
  return impl().placement->counters();
}

}  // namespace hvd::detail
