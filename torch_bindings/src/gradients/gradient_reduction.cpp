// Implements one reduction, which submits the gradients of all parameters and waits for them.
#include <algorithm>
#include <map>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <hvd/core/log.hpp>
#include <hvd/hvd.hpp>
#include <hvd/ops/internal/backends.hpp>
#include <hvd/torch/collectives.hpp>

#include "collectives/device_event.hpp"
#include "collectives/operation.hpp"
#include "collectives/tensor_traits.hpp"
#include "gradients/gradient_reducer_impl.hpp"

namespace hvd::detail {

/// `factor` multiplies the gradient, and so does this rank's share.
void GradientReducer::Impl::submit(GradientSlot& slot, const torch::Tensor& incoming,
                                   double factor) {
  const torch::NoGradGuard no_grad;
  // This is set also when the submission fails. A second attempt could succeed, after the operation
  // that bears the same name has ended, and would then match the next step of the other ranks.
  slot.in_flight = true;
  slot.is_stepped = false;
  if (weight) factor *= weight->share(error);
  const torch::Tensor& gradient = slot.parameter.grad();
  if (gradient.is_sparse()) {
    if (!options.sparse_as_dense) return submit_sparse(slot, factor);
    slot.parameter.mutable_grad() = gradient.to_dense();
  }
  require_supported(gradient);
  slot.kept = placement->place(slot.parameter, incoming, slot.in_engine);
  slot.gradient = gradient;
  if (factor != 1 && !slot.has_none) scale_(elements_of(gradient), factor);
  if (slot.compressor) make_compressor_for(slot, gradient);
  if (slot.compressor) {
    if (slot.unapplied.defined()) plain_alias(gradient).add_(std::exchange(slot.unapplied, {}));
    slot.compressor->begin(exchange_of(slot), plain_alias(gradient));
    slot.compressing = true;
  } else {
    convert(slot);
    if (gradient.is_cuda()) {
      slot.stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(gradient.device());
    }
    if (slot.joins_group) {
      add_to(groups[static_cast<std::size_t>(slot.group)], slot);
    } else if (slot.bucket) {
      add_to(buckets[*slot.bucket], slot);
    } else {
      events.begin();
      slot.work = context.submit(submission_for(slot));
    }
  }
  note_overwritten(gradient);
  slot.version = gradient._version();
}

/// Makes the compressor anew when the model has moved to another dtype or device. What the old one
/// has not sent is lost.
void GradientReducer::Impl::make_compressor_for(GradientSlot& slot, const torch::Tensor& gradient) {
  if (slot.compressed.dtype() == gradient.dtype() && slot.compressed.device() == gradient.device())
    return;
  slot.compressor = options.compressor->make(slot.parameter);
  slot.compressed = gradient.options();
  slot.unapplied.reset();
}

void GradientReducer::Impl::submit_sparse(GradientSlot& slot, double factor) {
  slot.is_sparse = true;
  leave_group(slot);
  slot.gradient = slot.parameter.grad();
  AllreduceOptions sparse = reduction(slot.collective);
  sparse.prescale *= factor;
  const torch::Tensor sent = factor == 0 ? torch::zeros_like(slot.gradient) : slot.gradient;
  slot.sparse_work = sparse_allreduce_async(sent, sparse);
  slot.version = slot.gradient._version();
}

void GradientReducer::Impl::add_to(Group& group, GradientSlot& slot) {
  group.ready.push_back(&slot);
  if (group.ready.size() == group.size) submit_together(group);
}

/// A sparse gradient is reduced by itself, on all ranks. The rest of its group may be complete
/// then.
void GradientReducer::Impl::leave_group(GradientSlot& slot) {
  if (!std::exchange(slot.joins_group, false)) return;
  Group& group = groups[static_cast<std::size_t>(slot.group)];
  --group.size;
  if (group.size > 0 && group.ready.size() == group.size) submit_together(group);
}

void GradientReducer::Impl::submit_together(Group& group) {
  events.begin();
  const std::vector<GradientSlot*> members = std::exchange(group.ready, {});
  if (group.name.empty()) {
    for (GradientSlot* const slot : members) {
      error.keep([&] { slot->work = context.submit(submission_for(*slot)); });
    }
    return;
  }
  std::vector<Submission> submissions;
  for (GradientSlot* const slot : members) submissions.push_back(submission_for(*slot));
  const std::vector<Work> works = context.submit_group(std::move(submissions), group.name);
  for (std::size_t i = 0; i < members.size(); ++i) members[i]->work = works[i];
}

/// Converts the gradient to the type that is sent, unless the engine does: on a GPU it converts
/// where it copies gradients anyway.
void GradientReducer::Impl::convert(GradientSlot& slot) {
  const torch::Tensor& gradient = slot.gradient;
  const torch::ScalarType type = sent_type(gradient.scalar_type(), options.compression);
  slot.converted.reset();
  slot.engine_converts = type != gradient.scalar_type() && gradient.is_cuda() &&
                         gradient.scalar_type() == torch::kFloat32 && gpu_copies_convert();
  if (type == gradient.scalar_type() || slot.engine_converts) return;
  slot.converted = placement->empty_row(gradient.numel(), gradient.options().dtype(type))
                       .copy_(elements_of(gradient));
}

/// Returns the event behind which a gradient on a device is ready, or null on the CPU.
std::shared_ptr<DeviceEvent> GradientReducer::Impl::ready(const GradientSlot& slot) {
  if (slot.gradient.is_cuda()) return events.on(*slot.stream);
  return record_device_event(slot.gradient);
}

Submission GradientReducer::Impl::submission_for(GradientSlot& slot) {
  const torch::Tensor& gradient = slot.gradient;
  const torch::Tensor& sent = slot.sent();
  Submission submission;
  Request& request = submission.request;
  request = request_for(OpKind::allreduce, reduction(slot.collective));
  request.dtype = dtype_of(sent_type(gradient.scalar_type(), options.compression));
  request.f32_memory = slot.engine_converts;
  request.device = engine_device_of(gradient);
  request.shape = shape_of(slot.parameter);
  submission.input = submission.output = data_of(sent);
  // The program may give the gradient other memory while this is reduced.
  // Reductions of the same memory share one reference, which `place` subtracts from the count.
  std::shared_ptr<c10::Storage> memory = slot.in_engine.lock();
  if (!memory || memory->unsafeGetStorageImpl() != sent.storage().unsafeGetStorageImpl()) {
    memory = std::make_shared<c10::Storage>(sent.storage());
  }
  submission.keep_alive = memory;
  slot.in_engine = memory;
  submission.ready = ready(slot);
  return submission;
}

AllreduceOptions GradientReducer::Impl::reduction(std::string name) const {
  AllreduceOptions reduction{.name = std::move(name),
                             .op = options.op,
                             .prescale = 1.0 / options.gradient_predivide_factor,
                             .postscale = options.gradient_predivide_factor,
                             .process_set = options.process_set,
                             .context = &context};
  if (options.average_accumulated) reduction.postscale /= options.backward_passes_per_step;
  return reduction;
}

/// Submits the gradient of a parameter whose hook has not submitted it, because the parameter is
/// unused or frozen or has had fewer passes than planned. Without a gradient it submits zeros.
/// `factor` multiplies the gradient.
void GradientReducer::Impl::submit_without_backward(GradientSlot& slot, double factor) {
  if (slot.grad_is_reduced) slot.set_aside = std::exchange(slot.parameter.mutable_grad(), {});
  slot.has_none = !slot.parameter.grad().defined();
  if (slot.has_none && slot.is_sparse) {
    std::vector<std::int64_t> no_rows = slot.parameter.sizes().vec();
    no_rows.front() = 0;
    const torch::TensorOptions dense = slot.parameter.options().requires_grad(false);
    slot.parameter.mutable_grad() =
        torch::sparse_coo_tensor(torch::empty({1, 0}, dense.dtype(torch::kInt64)),
                                 torch::empty(no_rows, dense), slot.parameter.sizes());
  } else if (slot.has_none) {
    slot.parameter.mutable_grad() = placement->zeros_for(slot.parameter);
  }
  submit(slot, {}, factor);
  if (slot.has_none) slot.parameter.mutable_grad().reset();
}

/// Submits what the ranks have to agree on, once it is known which parameters this rank has used.
void GradientReducer::Impl::start_agreement() {
  agreement->read_parameters();
  agreement->begin(steps, reductions + 1);
  for (std::size_t index = 0; index < slots.size(); ++index) {
    const GradientSlot& slot = slots[index];
    const bool is_new = slot.parameter.grad().defined() && !slot.grad_is_reduced;
    if (slot.in_flight || is_new) agreement->use(index);
  }
  agreement->start(reduction(prefix + "/agreement"));
}

/// Returns whether the ranks exchange layouts in this reduction. All ranks have to decide alike, so
/// only the last exchange and the parameters that take part count, and not what this rank has seen
/// since. The rank that uses a parameter first has to tell the others whether their zeros are to be
/// sparse. Therefore each reduction has one more small allreduce as long as no rank has used some
/// parameter that is trained.
bool GradientReducer::Impl::layouts_are_due() const {
  if (!layouts->is_complete()) return true;
  if (options.sparse_as_dense) return false;
  for (std::size_t index = 0; index < slots.size(); ++index) {
    const GradientSlot& slot = slots[index];
    const bool takes_part = slot.takes_part || slot.parameter.requires_grad();
    if (takes_part && !layouts->is_known(index)) return true;
  }
  return false;
}

void GradientReducer::Impl::start_layout_exchange() {
  if (!layouts || !layouts_are_due()) return;
  error.keep([&] {
    for (std::size_t index = 0; index < slots.size(); ++index) {
      const torch::Tensor& gradient = slots[index].parameter.grad();
      if (!slots[index].in_flight && gradient.defined()) layouts->add(index, gradient);
    }
    layouts->start(prefix + "/layouts");
  });
}

void GradientReducer::Impl::finish_layout_exchange() {
  if (!layouts || !layouts->finish()) return;
  for (std::size_t index = 0; index < slots.size(); ++index) {
    GradientSlot& slot = slots[index];
    slot.is_sparse = slot.is_sparse || (layouts->is_sparse(index) && !options.sparse_as_dense);
  }
  const bool is_first = context.rank() == context.ranks_of(options.process_set).front();
  if (!is_first || !layouts->all_are_equal()) return;
  log(LogLevel::warn, context.rank(),
      fmt::format("{}: all ranks had the same gradients in the first step, bit by bit. They read "
                  "the same data, and each needs its own shard, as of hvd::DistributedSampler; or "
                  "the inputs are random and all ranks draw the same numbers, and each needs its "
                  "own seed: torch::manual_seed(seed + hvd::rank())",
                  owner));
}

void GradientReducer::Impl::submit_missing() {
  const torch::NoGradGuard no_grad;
  if (weight) {
    // Other ranks may wait for this rank's weight in their hooks, before they begin the exchange of
    // layouts.
    const std::lock_guard lock(mutex);
    weight->share(error);
  }
  error.keep([&] { finish_layout_exchange(); });
  const std::lock_guard lock(mutex);
  error.keep([&] { start_agreement(); });
  int passes = 0;
  for (const GradientSlot& slot : slots) passes = std::max(passes, slot.passes);
  // A parameter that was used in fewer passes than another counts as one with zeros in the others.
  const double factor =
      factor_of_fewer_passes(options.average_accumulated, passes, options.backward_passes_per_step);
  for (std::size_t index = 0; index < slots.size(); ++index) {
    GradientSlot& slot = slots[index];
    slot.takes_part = slot.takes_part || slot.parameter.requires_grad();
    if (!slot.takes_part) continue;
    error.keep([&] {
      slot.hook.attach(slot.parameter, *this, index);
      if (!slot.in_flight) submit_without_backward(slot, factor);
      check_untouched(slot);
    });
  }
  // A bucket is incomplete if a member has failed or has become sparse.
  for (Group& bucket : buckets) submit_together(bucket);
  error.keep([&] {
    if (optimizer && parameter_count(*optimizer) != known_parameters) {
      misuse("the optimizer got parameters after construction");
    }
    if (module) check_module();
  });
  if (module && options.broadcast_buffers) error.keep([&] { submit_buffers(); });
}

void GradientReducer::Impl::check_untouched(const GradientSlot& slot) {
  if (slot.is_stepped) return;
  const torch::Tensor& gradient = slot.parameter.grad();
  if (slot.has_none && !gradient.defined()) return;
  if (!gradient.is_same(slot.gradient) || gradient._version() != slot.version) {
    misuse(
        fmt::format("the gradient of {} was changed, replaced or zeroed between backward() and "
                    "step(); call synchronize() first{}",
                    slot.name, parameters_changed()));
  }
}

/// Reports a parameter that the module has got, lost or replaced.
void GradientReducer::Impl::check_module() const {
  const auto parameters = module->parameters().distinct();
  const auto& now = parameters.items();
  for (std::size_t i = 0; i < std::max(now.size(), slots.size()); ++i) {
    if (i < now.size() && i < slots.size() && now[i].second.is_same(slots[i].parameter)) continue;
    misuse(
        fmt::format("the module's parameters are not those of the constructor: {} was added, "
                    "removed or replaced. Construct the DistributedDataParallel again after such "
                    "changes",
                    i < now.size() ? now[i].first : slots[i].name));
  }
}

/// A pass with gradients for the parameters of the constructor checks the module when it submits
/// them. This finds a module of which all those were replaced, or of which the rest is frozen.
void GradientReducer::Impl::check_module_after_pass() {
  const std::lock_guard lock(mutex);
  if (!has_unsent_gradients) check_module();
}

void GradientReducer::Impl::submit_buffers() {
  const int first = context.ranks_of(options.process_set).front();
  for (const auto& [name, buffer] : module->buffers().distinct().items()) {
    // Autograd does not count this as a change, as it does not count those by BatchNorm itself.
    // Otherwise it would refuse the backward pass of an earlier forward pass, although BatchNorm
    // does not use the running statistics there.
    const TensorWork work = broadcast_async_(plain_alias(buffer), first,
                                             {.name = fmt::format("{}/buffer {}", prefix, name),
                                              .process_set = options.process_set,
                                              .context = &context});
    buffer_works.emplace_back(buffer, work.work());
  }
}

/// Waits for everything that was submitted. When this returns, also after an error, no thread
/// writes to gradients any more. A device may still do so, before what the current stream does
/// next.
void GradientReducer::Impl::finish_reduction() {
  const torch::NoGradGuard no_grad;
  for (GradientSlot& slot : slots) {
    if (slot.work.valid() || slot.sparse_work) error.keep([&] { finish(slot); });
  }
  finish_compressed();
  for (const auto& each : buffer_works) error.keep([&] { waits.wait(each.second, each.first); });
  buffer_works.clear();
  expect_same_buckets();
  waits.end_reduction();
  if (weight) weight->finish(error);
  error.keep([&] { agreement->finish(owner); });
  std::vector<GradientSlot*> left;  // for the base, if it steps in the backward pass
  for (std::size_t index = 0; index < slots.size(); ++index) {
    GradientSlot& slot = slots[index];
    // What no rank has used stays as it is. Otherwise momentum and weight decay would move it.
    if (slot.has_none && agreement->is_used(index)) {
      slot.parameter.mutable_grad() = slot.gradient;
      slot.unapplied.reset();
    }
    error.keep([&] {
      if (put_back_kept(slot)) slot.parameter.mutable_grad().copy_(slot.gradient);
    });
    error.keep([&] { add_set_aside(slot); });
    slot.grad_is_reduced = slot.parameter.grad().defined();
    slot.in_flight = false;
    slot.has_none = false;
    slot.passes = 0;
    slot.work = {};
    slot.sparse_work.reset();
    slot.gradient.reset();
    slot.converted.reset();
    if (slot.grad_is_reduced) left.push_back(&slot);
  }
  if (options.step_in_backward) step_only(left);
  count_groups();
  missing_after_nested = nullptr;
  has_unsent_gradients = false;
  is_reduced = true;
  ++reductions;
  steps = 0;
  if (!module) return;
  reductions = 0;  // each pass is a step
  context.mark_step();
}

void GradientReducer::Impl::finish(GradientSlot& slot) {
  if (slot.sparse_work) {
    slot.gradient = slot.sparse_work->wait();
    if (!slot.has_none) slot.parameter.mutable_grad() = slot.gradient;
    return;
  }
  waits.wait(slot.work, slot.sent());
  slot.turn = slot.work.turn();
  if (slot.converted.defined()) elements_of(slot.gradient).copy_(slot.converted);
}

/// Expects the same turns of the frozen schedule in the next reduction. A gradient of no turn is
/// submitted at once, because what is fused without a frozen schedule depends on when it comes.
void GradientReducer::Impl::expect_same_buckets() {
  buckets.clear();
  std::map<std::uint64_t, std::size_t> bucket_of;
  for (GradientSlot& slot : slots) {
    slot.bucket.reset();
    const std::uint64_t turn = std::exchange(slot.turn, 0);
    if (turn == 0 || slot.group >= 0) continue;
    const auto [at, is_new] = bucket_of.try_emplace(turn, buckets.size());
    if (is_new) buckets.emplace_back();
    slot.bucket = at->second;
    ++buckets[at->second].size;
  }
}

/// Calls `go_on` of all parameters in rounds, so that the messages of one parameter overlap with
/// those of the others.
void GradientReducer::Impl::finish_compressed() {
  for (bool more = true; more;) {
    more = false;
    for (GradientSlot& slot : slots) {
      if (!slot.compressing) continue;
      bool done = true;  // remains true when `go_on` throws
      error.keep([&] {
        const torch::Tensor gradient = plain_alias(slot.gradient);
        const GradientExchange exchange = exchange_of(slot);
        done = slot.compressor->go_on(exchange, gradient);
        if (!done) return;
        if (slot.has_none) slot.unapplied = gradient.clone();
        if (options.op == ReduceOp::sum) gradient.mul_(exchange.ranks());
        if (options.average_accumulated) gradient.div_(options.backward_passes_per_step);
      });
      slot.compressing = !done;
      more = more || !done;
    }
  }
}

/// Sets `.grad` back to the tensor that the program keeps. Returns false if there is no such
/// tensor, or if the program has replaced the copy that was reduced; that is reported as another
/// error.
bool GradientReducer::Impl::put_back_kept(GradientSlot& slot) {
  torch::Tensor kept = std::exchange(slot.kept, {});
  torch::Tensor& gradient = slot.parameter.mutable_grad();
  if (!kept.defined() || !gradient.is_same(slot.gradient)) return false;
  gradient = std::move(kept);
  return true;
}

/// Adds the gradient that earlier passes of this step have reduced.
void GradientReducer::Impl::add_set_aside(GradientSlot& slot) {
  const torch::Tensor earlier = std::exchange(slot.set_aside, {});
  if (!earlier.defined()) return;
  torch::Tensor& gradient = slot.parameter.mutable_grad();
  if (!gradient.defined()) {
    gradient = earlier;
  } else if (earlier.is_sparse()) {
    gradient = gradient + earlier;
  } else {
    gradient = torch::Tensor(earlier).add_(gradient);
  }
}

}  // namespace hvd::detail
