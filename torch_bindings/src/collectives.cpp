#include <ATen/MemoryOverlap.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/collectives.hpp>

#include "device_event.hpp"
#include "tensor_traits.hpp"

namespace hvd {

namespace {

/// The memory of one operation in flight.
struct Buffers {
  torch::Tensor input;
  torch::Tensor output;
};

void* data_of(const torch::Tensor& tensor) {
  return tensor.numel() == 0 ? nullptr : tensor.data_ptr();
}

torch::Tensor row_major(const torch::Tensor& tensor) {
  return plain_alias(tensor).resolve_neg().contiguous();
}

Submission submission_for(OpKind kind, const std::string& name, const torch::Tensor& like,
                          const std::shared_ptr<Buffers>& buffers) {
  Submission submission;
  submission.request.name = name;
  submission.request.kind = kind;
  submission.request.dtype = dtype_of(like);
  submission.request.device = engine_device_of(like);
  submission.request.shape = shape_of(like);
  submission.input = data_of(buffers->input);
  submission.keep_alive = buffers;
  submission.ready = record_device_event(like);
  return submission;
}

/// Allreduce and broadcast into a new tensor.
TensorWork submit_copy(Context& context, Request settings, const torch::Tensor& tensor) {
  require_supported(tensor);
  const torch::NoGradGuard no_grad;
  auto buffers = std::make_shared<Buffers>();
  buffers->input = row_major(tensor);
  buffers->output = torch::empty_like(buffers->input);
  auto result = std::make_shared<torch::Tensor>(buffers->output);

  Submission submission = submission_for(settings.kind, settings.name, tensor, buffers);
  submission.request.op = settings.op;
  submission.request.prescale = settings.prescale;
  submission.request.postscale = settings.postscale;
  submission.request.root = settings.root;
  submission.output = data_of(buffers->output);
  return {context.submit(std::move(submission)), std::move(result)};
}

/// Allreduce and broadcast in place: of the memory itself where it is row-major, else of a copy
/// that is copied back.
TensorWork submit_in_place(Context& context, Request settings, const torch::Tensor& tensor) {
  require_supported(tensor);
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    throw Error(Errc::invalid_argument,
                settings.name + ": elements of the tensor share memory, so it cannot be written");
  }
  const torch::NoGradGuard no_grad;
  auto buffers = std::make_shared<Buffers>();
  buffers->input = row_major(tensor);
  buffers->output = buffers->input;

  Submission submission = submission_for(settings.kind, settings.name, tensor, buffers);
  submission.request.op = settings.op;
  submission.request.prescale = settings.prescale;
  submission.request.postscale = settings.postscale;
  submission.request.root = settings.root;
  submission.output = data_of(buffers->output);
  if (!is_row_major(tensor)) {
    submission.finish = [target = plain_alias(tensor), reduced = buffers->output] {
      const torch::NoGradGuard executor_has_no_grad;
      target.copy_(reduced);
      synchronize_stream(target);
    };
  }
  Work work = context.submit(std::move(submission));
  note_overwritten(tensor);
  return {std::move(work), std::make_shared<torch::Tensor>(tensor)};
}

Request allreduce_settings(const AllreduceOptions& options) {
  Request settings;
  settings.kind = OpKind::allreduce;
  settings.name = options.name;
  settings.op = options.op;
  settings.prescale = options.prescale;
  settings.postscale = options.postscale;
  return settings;
}

Request broadcast_settings(int root, const std::string& name) {
  Request settings;
  settings.kind = OpKind::broadcast;
  settings.name = name;
  settings.root = root;
  return settings;
}

}  // namespace

TensorWork allreduce_async(Context& context, const torch::Tensor& tensor,
                           const AllreduceOptions& options) {
  return submit_copy(context, allreduce_settings(options), tensor);
}

TensorWork allreduce_async_(Context& context, const torch::Tensor& tensor,
                            const AllreduceOptions& options) {
  return submit_in_place(context, allreduce_settings(options), tensor);
}

TensorWork broadcast_async(Context& context, const torch::Tensor& tensor, int root,
                           const std::string& name) {
  return submit_copy(context, broadcast_settings(root, name), tensor);
}

TensorWork broadcast_async_(Context& context, const torch::Tensor& tensor, int root,
                            const std::string& name) {
  return submit_in_place(context, broadcast_settings(root, name), tensor);
}

TensorWork allgather_async(Context& context, const torch::Tensor& tensor, const std::string& name) {
  require_supported(tensor);
  const torch::NoGradGuard no_grad;
  auto buffers = std::make_shared<Buffers>();
  buffers->input = row_major(tensor.dim() == 0 ? tensor.reshape({1}) : tensor);
  auto result = std::make_shared<torch::Tensor>();

  Submission submission = submission_for(OpKind::allgather, name, buffers->input, buffers);
  submission.allocate = [result, options = buffers->input.options()](const Shape& shape) {
    *result = torch::empty(shape, options);
    return data_of(*result);
  };
  return {context.submit(std::move(submission)), std::move(result)};
}

torch::Tensor allreduce(Context& context, const torch::Tensor& tensor,
                        const AllreduceOptions& options) {
  return allreduce_async(context, tensor, options).wait();
}

torch::Tensor allreduce_(Context& context, const torch::Tensor& tensor,
                         const AllreduceOptions& options) {
  return allreduce_async_(context, tensor, options).wait();
}

torch::Tensor allgather(Context& context, const torch::Tensor& tensor, const std::string& name) {
  return allgather_async(context, tensor, name).wait();
}

torch::Tensor broadcast(Context& context, const torch::Tensor& tensor, int root,
                        const std::string& name) {
  return broadcast_async(context, tensor, root, name).wait();
}

torch::Tensor broadcast_(Context& context, const torch::Tensor& tensor, int root,
                         const std::string& name) {
  return broadcast_async_(context, tensor, root, name).wait();
}

}  // namespace hvd
