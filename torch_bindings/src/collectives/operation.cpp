#include "collectives/operation.hpp"

#include <algorithm>

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>

#include "collectives/device_event.hpp"
#include "collectives/tensor_traits.hpp"

namespace hvd {

torch::Tensor TensorWork::wait() const {
  work_.wait();
  // The result belongs to the stream on which the operation began, as that of a hook.
  detail::note_use_by_current_stream(*result_);
  return *result_;
}

namespace detail {

namespace {

/// The memory that the engine reads and writes while one operation runs.
struct Buffers {
  torch::Tensor input;
  torch::Tensor output;
};

[[noreturn]] void refuse_tensor(const Request& request, const std::string& why) {
  throw Error(Errc::invalid_argument,
              fmt::format("{} '{}': {}", to_string(request.kind), request.name, why));
}

void check_tensor(const Request& request, const torch::Tensor& tensor, Form form) {
  try {
    require_supported(tensor);
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("{} '{}': {}", to_string(request.kind), request.name, error.what()));
  }
  if (form == Form::in_place && at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    refuse_tensor(request, "elements of the tensor share memory, so it cannot be written");
  }
}

/// Returns the tensor as it is sent: row-major, without autograd, in the type of the compression.
/// It shares memory with `tensor` when it can.
torch::Tensor to_send(const torch::Tensor& tensor, Compression compression) {
  const torch::Tensor plain = resolved(plain_alias(tensor));
  return plain.to(sent_type(plain.scalar_type(), compression)).contiguous();
}

Submission submission_for(Request request, const std::shared_ptr<Buffers>& buffers,
                          std::shared_ptr<DeviceEvent> ready) {
  const torch::Tensor& input = buffers->input;
  Submission submission;
  submission.request = std::move(request);
  submission.request.dtype = dtype_of(input);
  submission.request.device = engine_device_of(input);
  submission.request.shape = shape_of(input);
  submission.input = data_of(input);
  submission.keep_alive = buffers;
  submission.ready = std::move(ready);
  return submission;
}

/// Returns a function for the engine's thread that copies the result to the program's tensor.
std::function<void()> copy_back(torch::Tensor target, const std::shared_ptr<Buffers>& buffers,
                                std::shared_ptr<StreamEvent> ready) {
  return [target = std::move(target), reduced = buffers->output, ready = std::move(ready),
          inference = c10::InferenceMode::is_enabled()] {
    // These are of the engine's thread. InferenceMode(false) enables gradients, so it comes first.
    const c10::InferenceMode mode_there(inference);
    const torch::NoGradGuard no_grad_there;
    const EventStreamGuard guard(ready.get());
    target.copy_(reduced);
    if (ready) ready->record();
  };
}

/// Makes an allreduce or a broadcast, whose result has the shape of the input.
Operation operation_of_same_shape(Request request, const torch::Tensor& tensor,
                                  Compression compression, Form form) {
  check_tensor(request, tensor, form);
  const torch::NoGradGuard no_grad;
  auto buffers = std::make_shared<Buffers>();
  buffers->input = to_send(tensor, compression);
  const bool own_memory = !buffers->input.is_alias_of(tensor);
  buffers->output =
      form == Form::in_place || own_memory ? buffers->input : torch::empty_like(buffers->input);
  Operation operation;
  const std::shared_ptr<StreamEvent> ready = record_device_event(buffers->input);
  operation.submission = submission_for(std::move(request), buffers, ready);
  operation.submission.output = data_of(buffers->output);
  if (form == Form::in_place) {
    operation.overwritten = tensor;
    operation.result = std::make_shared<torch::Tensor>(tensor);
    if (own_memory) operation.submission.finish = copy_back(plain_alias(tensor), buffers, ready);
  } else if (buffers->output.scalar_type() == tensor.scalar_type()) {
    operation.result = std::make_shared<torch::Tensor>(buffers->output);
  } else {
    operation.result = std::make_shared<torch::Tensor>(
        torch::empty(tensor.sizes(), buffers->output.options().dtype(tensor.scalar_type())));
    operation.submission.finish = copy_back(*operation.result, buffers, ready);
  }
  return operation;
}

/// Makes an allgather, a reducescatter or an alltoall. The engine finds out the shape of the
/// result.
Operation operation_of_other_shape(Request request, const torch::Tensor& tensor,
                                   Compression compression) {
  const torch::NoGradGuard no_grad;
  auto buffers = std::make_shared<Buffers>();
  buffers->input = to_send(tensor, compression);
  Operation operation;
  operation.result = std::make_shared<torch::Tensor>();
  const std::shared_ptr<StreamEvent> ready = record_device_event(buffers->input);
  operation.submission = submission_for(std::move(request), buffers, ready);
  const ResultMemory memory(buffers->input, ready);
  // Another thread of the program, in another mode, may run the operation.
  const bool inference = c10::InferenceMode::is_enabled();
  operation.submission.allocate = [result = operation.result, memory,
                                   inference](const Shape& shape) {
    const c10::InferenceMode mode_there(inference);
    *result = memory.empty(shape);
    return data_of(*result);
  };
  if (buffers->input.scalar_type() != tensor.scalar_type()) {
    operation.submission.finish = [result = operation.result, memory, type = tensor.scalar_type(),
                                   inference] {
      const c10::InferenceMode mode_there(inference);
      const torch::NoGradGuard no_grad_there;  // on the engine's thread
      *result = memory.converted(*result, type);
    };
  }
  return operation;
}

Request request_for(OpKind kind, const CollectiveOptions& options) {
  Request request;
  request.kind = kind;
  request.name = options.name;
  request.process_set = options.process_set;
  return request;
}

}  // namespace

Request request_for(OpKind kind, const AllreduceOptions& options) {
  Request request = request_for(kind, CollectiveOptions{options.name, options.process_set});
  request.op = options.op;
  request.prescale = options.prescale;
  request.postscale = options.postscale;
  return request;
}

Operation allreduce_operation(const torch::Tensor& tensor, const AllreduceOptions& options,
                              Compression compression, Form form) {
  return operation_of_same_shape(request_for(OpKind::allreduce, options), tensor, compression,
                                 form);
}

Operation broadcast_operation(const torch::Tensor& tensor, int root,
                              const CollectiveOptions& options, Form form) {
  Request request = request_for(OpKind::broadcast, options);
  request.root = root;
  return operation_of_same_shape(std::move(request), tensor, Compression::none, form);
}

Operation allgather_operation(const torch::Tensor& tensor, const CollectiveOptions& options) {
  Request request = request_for(OpKind::allgather, options);
  check_tensor(request, tensor, Form::copy);
  return operation_of_other_shape(std::move(request),
                                  tensor.dim() == 0 ? plain_alias(tensor).reshape({1}) : tensor,
                                  Compression::none);
}

Operation reducescatter_operation(const torch::Tensor& tensor, const AllreduceOptions& options,
                                  Compression compression) {
  Request request = request_for(OpKind::reducescatter, options);
  check_tensor(request, tensor, Form::copy);
  return operation_of_other_shape(std::move(request), tensor, compression);
}

Operation alltoall_operation(const Context& context, const torch::Tensor& tensor,
                             torch::IntArrayRef splits, const CollectiveOptions& options) {
  Request request = request_for(OpKind::alltoall, options);
  check_tensor(request, tensor, Form::copy);
  if (tensor.dim() == 0) refuse_tensor(request, "a scalar has no first dimension");
  request.splits = splits.vec();
  if (splits.empty()) {
    const auto ranks = static_cast<std::int64_t>(context.ranks_of(options.process_set).size());
    if (tensor.size(0) % ranks != 0) {
      refuse_tensor(request,
                    fmt::format("{} rows cannot be split evenly over {} ranks; give splits",
                                tensor.size(0), ranks));
    }
    request.splits.assign(static_cast<std::size_t>(ranks), tensor.size(0) / ranks);
  }
  Operation operation = operation_of_other_shape(std::move(request), tensor, Compression::none);
  operation.received = std::make_shared<std::vector<std::int64_t>>();
  operation.submission.report = [received =
                                     operation.received](std::span<const std::int64_t> rows) {
    received->assign(rows.begin(), rows.end());
  };
  return operation;
}

TensorWork start(Context& context, Operation operation) {
  Work work = context.submit(std::move(operation.submission));
  if (operation.overwritten.defined()) note_overwritten(operation.overwritten);
  return {std::move(work), std::move(operation.result)};
}

torch::Tensor run(Context& context, Operation operation) {
  context.run(std::move(operation.submission));
  if (operation.overwritten.defined()) note_overwritten(operation.overwritten);
  return *operation.result;
}

torch::Tensor run_in_stream(Context& context, Operation operation) {
  const bool is_on_cpu = operation.submission.ready == nullptr;
  if (is_on_cpu || !may_order(context)) return run(context, std::move(operation));
  const Work work = context.submit(std::move(operation.submission));
  if (operation.overwritten.defined()) note_overwritten(operation.overwritten);
  StreamWaits waits(true);
  waits.wait(work, *operation.result);
  return *operation.result;
}

std::vector<TensorWork> start_group(Context& context, std::vector<Operation> operations,
                                    const std::string& name) {
  std::vector<Submission> submissions;
  submissions.reserve(operations.size());
  for (Operation& operation : operations) {
    submissions.push_back(std::move(operation.submission));
  }
  std::vector<Work> works = context.submit_group(std::move(submissions), name);
  std::vector<TensorWork> started;
  started.reserve(works.size());
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (operations[i].overwritten.defined()) note_overwritten(operations[i].overwritten);
    started.emplace_back(std::move(works[i]), std::move(operations[i].result));
  }
  return started;
}

RankInSet rank_in_set(const Context& context, std::int32_t process_set) {
  const std::vector<int> ranks = context.ranks_of(process_set);
  return {std::lower_bound(ranks.begin(), ranks.end(), context.rank()) - ranks.begin(),
          std::ssize(ranks)};
}

}  // namespace detail
}  // namespace hvd
