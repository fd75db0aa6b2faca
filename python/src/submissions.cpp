#include "submissions.hpp"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

#include "c10d_error.hpp"
#include "collectives/device_event.hpp"
#include "collectives/tensor_traits.hpp"

namespace hvd::python {
namespace {

using detail::data_of;

/// Returns what this rank contributes to a reduction. The factor of PREMUL_SUM may differ between
/// ranks, so the engine does not know it.
at::Tensor contribution(const at::Tensor& values, const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return values;
  const auto& factor = static_cast<const c10d::NCCLPreMulSumSupplement&>(*op.supplement_);
  const at::Tensor scaled = factor.tensor_factor.defined()
                                ? values.mul(factor.tensor_factor.to(values.device()).reshape({}))
                                : values.mul(factor.double_factor);
  return scaled.to(values.scalar_type());
}

bool is_bitwise(const c10d::ReduceOp& op) {
  return op.op_ == c10d::ReduceOp::BAND || op.op_ == c10d::ReduceOp::BOR ||
         op.op_ == c10d::ReduceOp::BXOR;
}

/// Combines the rows, which are the contributions of the ranks.
at::Tensor combine_bits(const at::Tensor& rows, const c10d::ReduceOp& op) {
  at::Tensor result = rows[0].clone();
  for (std::int64_t i = 1; i < rows.size(0); ++i) {
    if (op.op_ == c10d::ReduceOp::BAND) result.bitwise_and_(rows[i]);
    if (op.op_ == c10d::ReduceOp::BOR) result.bitwise_or_(rows[i]);
    if (op.op_ == c10d::ReduceOp::BXOR) result.bitwise_xor_(rows[i]);
  }
  return result;
}

std::int64_t elements_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

/// Copies the parts of `from` into the tensors, in order.
void copy_parts(const at::Tensor& from, const std::vector<at::Tensor>& into) {
  const at::Tensor values = from.view({-1});
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : into) {
    tensor.copy_(values.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

Submission submission_of(OpKind kind, const at::Tensor& input) {
  Submission submission;
  submission.request.kind = kind;
  submission.request.dtype = detail::dtype_of(input);
  submission.request.device = detail::engine_device_of(input);
  submission.request.shape = {input.numel()};
  submission.input = data_of(input);
  submission.keep_alive = std::make_shared<at::Tensor>(input);
  submission.ready = detail::record_device_event(input);
  return submission;
}

/// Makes the engine call `body` after success. Its work on a device is queued on the stream that
/// was current when the operation was prepared, and the thread that runs it has the inference
/// mode that was set then: tensors that are made in that mode may be written only in it.
void finish_with(Submission& submission, std::function<void()> body) {
  submission.finish = [body = std::move(body),
                       ready = std::static_pointer_cast<detail::StreamEvent>(submission.ready),
                       inference = c10::InferenceMode::is_enabled()] {
    // These are of the engine's thread. InferenceMode(false) enables gradients, so it comes first.
    const c10::InferenceMode mode_there(inference);
    const at::NoGradGuard no_grad_there;
    const detail::EventStreamGuard guard(ready.get());
    body();
    if (ready) ready->record();
  };
}

/// Puts the result of a collective into the tensors, directly where there is one contiguous tensor.
void receive(Submission& submission, const std::vector<at::Tensor>& outputs,
             const at::TensorOptions& like) {
  const std::int64_t count = elements_of(outputs);
  for (const at::Tensor& output : outputs) {
    check_arguments(output.scalar_type() == like.dtype().toScalarType(),
                    "the tensors of a collective need the same dtype");
  }
  const bool direct = outputs.size() == 1 && outputs.front().is_contiguous();
  const at::Tensor memory =
      direct ? detail::plain_alias(outputs.front()) : at::empty({count}, like);
  submission.allocate = [memory, count](const Shape& shape) {
    if (element_count(shape) != count) {
      throw Error(Errc::invalid_argument, fmt::format("the output has {} elements, the result {}",
                                                      count, element_count(shape)));
    }
    return data_of(memory);
  };
  if (!direct) finish_with(submission, [memory, outputs] { copy_parts(memory, outputs); });
}

/// Gathers what all ranks contribute, and combines `count` elements from `first` on.
Submission bits_combined(const at::Tensor& input, std::int64_t first, std::int64_t count,
                         const at::Tensor& output, const c10d::ReduceOp& op, int size) {
  Submission submission = submission_of(OpKind::allgather, input);
  const at::Tensor all = at::empty({size, input.numel()}, input.options());
  receive(submission, {all}, input.options());
  finish_with(submission, [all, first, count, op, output = detail::plain_alias(output)] {
    copy_parts(combine_bits(all.narrow(1, first, count), op), {output});
  });
  return submission;
}

}  // namespace

ReduceOp reduce_op_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:  // `contribution` multiplies
      return ReduceOp::sum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::average;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::product;
    case c10d::ReduceOp::MIN:
      return ReduceOp::min;
    case c10d::ReduceOp::MAX:
      return ReduceOp::max;
    default:
      break;
  }
  throw Error(Errc::unsupported, "backend hvd has no such reduce operation for this collective");
}

at::Tensor& only(std::vector<at::Tensor>& tensors) {
  check_arguments(tensors.size() == 1, "backend hvd takes one tensor per call");
  return tensors.front();
}

at::Tensor dense(const at::Tensor& tensor) {
  detail::require_supported(tensor);
  const at::Tensor alias = detail::plain_alias(tensor);
  const bool is_plain = alias.is_contiguous() && !alias.is_conj() && !alias.is_neg();
  return is_plain ? alias : detail::resolved(alias).contiguous();
}

at::Tensor dense(const std::vector<at::Tensor>& tensors) {
  if (tensors.size() == 1) return dense(tensors.front());
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(dense(tensor).view({-1}));
  return at::cat(parts);
}

Submission in_place(OpKind kind, const at::Tensor& tensor, const at::Tensor& memory) {
  Submission submission = submission_of(kind, memory);
  submission.output = data_of(memory);
  if (!memory.is_alias_of(tensor)) {
    finish_with(submission,
                [memory, tensor = detail::plain_alias(tensor)] { copy_parts(memory, {tensor}); });
  }
  return submission;
}

Submission reduced(const at::Tensor& tensor, const c10d::ReduceOp& op, bool receives, int size) {
  const at::Tensor input = dense(tensor);
  // A rank that does not receive the result needs a place for it all the same.
  const at::Tensor output = receives ? tensor : at::empty_like(input);
  if (is_bitwise(op)) return bits_combined(input, 0, input.numel(), output, op, size);
  const at::Tensor values = contribution(input, op);
  Submission submission = in_place(OpKind::allreduce, tensor, values);
  submission.request.op = reduce_op_of(op);
  if (!receives) {
    submission.output = data_of(output);
    submission.finish = nullptr;  // the program's tensor stays as it is
    submission.keep_alive = std::make_shared<std::pair<at::Tensor, at::Tensor>>(values, output);
  }
  return submission;
}

Submission gathered(const at::Tensor& tensor, const std::vector<at::Tensor>& outputs) {
  const at::Tensor input = dense(tensor);
  Submission submission = submission_of(OpKind::allgather, input);
  receive(submission, outputs, input.options());
  return submission;
}

Submission reduce_scattered(const at::Tensor& input, const at::Tensor& output,
                            const c10d::ReduceOp& op, int rank, int size) {
  const std::int64_t count = output.numel();
  check_arguments(input.numel() == count * size,
                  "the input of a reduce_scatter is the group's size times as large as its output");
  if (is_bitwise(op)) return bits_combined(input, rank * count, count, output, op, size);
  Submission submission = submission_of(OpKind::reducescatter, contribution(input, op));
  submission.request.op = reduce_op_of(op);
  receive(submission, {output}, input.options());
  return submission;
}

Submission exchanged(const at::Tensor& input, std::vector<std::int64_t> splits,
                     const std::vector<at::Tensor>& outputs) {
  Submission submission = submission_of(OpKind::alltoall, input);
  submission.request.splits = std::move(splits);
  receive(submission, outputs, input.options());
  return submission;
}

}  // namespace hvd::python
