#include <utility>

#include <hvd/ops/collectives.hpp>

namespace hvd {
namespace {

Request request_for(OpKind kind, const CollectiveOptions& options, std::int64_t count,
                    DType dtype) {
  Request request;
  request.name = options.name;
  request.kind = kind;
  request.dtype = dtype;
  request.shape = {count};
  request.process_set = options.process_set;
  return request;
}

Request reduction_for(OpKind kind, const AllreduceOptions& options, std::int64_t count,
                      DType dtype) {
  Request request = request_for(kind, {options.name, options.process_set}, count, dtype);
  request.op = options.op;
  request.prescale = options.prescale;
  request.postscale = options.postscale;
  return request;
}

Submission allreduce_of(const void* input, void* output, std::int64_t count, DType dtype,
                        const AllreduceOptions& options) {
  Submission submission;
  submission.request = reduction_for(OpKind::allreduce, options, count, dtype);
  submission.input = input;
  submission.output = output;
  return submission;
}

Submission broadcast_of(void* data, std::int64_t count, DType dtype, int root,
                        const CollectiveOptions& options) {
  Submission submission;
  submission.request = request_for(OpKind::broadcast, options, count, dtype);
  submission.request.root = root;
  submission.input = data;
  submission.output = data;
  return submission;
}

/// Whose result `output` is resized for.
Submission into(Bytes& output, Request request, const void* input) {
  Submission submission;
  submission.request = std::move(request);
  submission.input = input;
  submission.allocate = [&output, dtype = submission.request.dtype](const Shape& shape) -> void* {
    output.resize(static_cast<std::size_t>(element_count(shape)) * size_of(dtype));
    return output.data();
  };
  return submission;
}

}  // namespace

Work allreduce_async(Context& context, const void* input, void* output, std::int64_t count,
                     DType dtype, const AllreduceOptions& options) {
  return context.submit(allreduce_of(input, output, count, dtype, options));
}

void allreduce(Context& context, const void* input, void* output, std::int64_t count, DType dtype,
               const AllreduceOptions& options) {
  context.run(allreduce_of(input, output, count, dtype, options));
}

Work broadcast_async(Context& context, void* data, std::int64_t count, DType dtype, int root,
                     const CollectiveOptions& options) {
  return context.submit(broadcast_of(data, count, dtype, root, options));
}

void broadcast(Context& context, void* data, std::int64_t count, DType dtype, int root,
               const CollectiveOptions& options) {
  context.run(broadcast_of(data, count, dtype, root, options));
}

Work allgather_async(Context& context, const void* input, std::int64_t count, DType dtype,
                     Bytes& output, const CollectiveOptions& options) {
  return context.submit(into(output, request_for(OpKind::allgather, options, count, dtype), input));
}

Work reducescatter_async(Context& context, const void* input, std::int64_t count, DType dtype,
                         Bytes& output, const AllreduceOptions& options) {
  return context.submit(
      into(output, reduction_for(OpKind::reducescatter, options, count, dtype), input));
}

Work alltoall_async(Context& context, const void* input, std::span<const std::int64_t> splits,
                    DType dtype, Bytes& output, std::vector<std::int64_t>& received,
                    const CollectiveOptions& options) {
  std::int64_t count = 0;
  for (const std::int64_t split : splits) count += split;
  Submission submission = into(output, request_for(OpKind::alltoall, options, count, dtype), input);
  submission.request.splits.assign(splits.begin(), splits.end());
  submission.report = [&received](std::span<const std::int64_t> counts) {
    received.assign(counts.begin(), counts.end());
  };
  return context.submit(std::move(submission));
}

void barrier(Context& context, const CollectiveOptions& options) {
  Submission submission;
  submission.request = request_for(OpKind::barrier, options, 0, DType::u8);
  submission.request.shape.clear();
  context.run(std::move(submission));
}

std::vector<Work> grouped_allreduce_async(Context& context, std::span<const AllreduceItem> items,
                                          const AllreduceOptions& options) {
  std::vector<Submission> submissions;
  for (const AllreduceItem& item : items) {
    AllreduceOptions one = options;
    one.name = item.name;
    submissions.push_back(allreduce_of(item.input, item.output, item.count, item.dtype, one));
  }
  return context.submit_group(std::move(submissions), options.name);
}

}  // namespace hvd
