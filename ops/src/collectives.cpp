#include <utility>

#include <hvd/ops/collectives.hpp>

namespace hvd {
namespace {

Request request_for(OpKind kind, const std::string& name, std::int64_t count, DType dtype) {
  Request request;
  request.name = name;
  request.kind = kind;
  request.dtype = dtype;
  request.shape = {count};
  return request;
}

}  // namespace

Work allreduce_async(Context& context, const void* input, void* output, std::int64_t count,
                     DType dtype, const AllreduceOptions& options) {
  Submission submission;
  submission.request = request_for(OpKind::allreduce, options.name, count, dtype);
  submission.request.op = options.op;
  submission.request.prescale = options.prescale;
  submission.request.postscale = options.postscale;
  submission.input = input;
  submission.output = output;
  return context.submit(std::move(submission));
}

Work broadcast_async(Context& context, void* data, std::int64_t count, DType dtype, int root,
                     const std::string& name) {
  Submission submission;
  submission.request = request_for(OpKind::broadcast, name, count, dtype);
  submission.request.root = root;
  submission.input = data;
  submission.output = data;
  return context.submit(std::move(submission));
}

Work allgather_async(Context& context, const void* input, std::int64_t count, DType dtype,
                     Bytes& output, const std::string& name) {
  Submission submission;
  submission.request = request_for(OpKind::allgather, name, count, dtype);
  submission.input = input;
  submission.allocate = [&output, dtype](const Shape& shape) -> void* {
    output.resize(static_cast<std::size_t>(element_count(shape)) * size_of(dtype));
    return output.data();
  };
  return context.submit(std::move(submission));
}

void barrier(Context& context) {
  Submission submission;
  submission.request.kind = OpKind::barrier;
  context.submit(std::move(submission)).wait();
}

}  // namespace hvd
