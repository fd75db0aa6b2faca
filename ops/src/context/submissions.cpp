#include "context/submissions.hpp"

#include <utility>

namespace hvd::detail {
namespace {

/// `Options` are those of any collective.
template <class Options>
Request request_for(OpKind kind, const Options& options, std::int64_t count, DType dtype) {
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
  Request request = request_for(kind, options, count, dtype);
  request.op = options.op;
  request.prescale = options.prescale;
  request.postscale = options.postscale;
  return request;
}

Submission into(AllocateResult output, Request request, const void* input) {
  Submission submission;
  submission.request = std::move(request);
  submission.input = input;
  submission.allocate = [memory = std::move(output)](const Shape& shape) {
    return memory(element_count(shape));
  };
  return submission;
}

}  // namespace

AllocateResult resized(Bytes& output, DType dtype) {
  return [&output, dtype](std::int64_t count) -> void* {
    output.resize(static_cast<std::size_t>(count) * size_of(dtype));
    return output.data();
  };
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

Submission allgather_of(const void* input, std::int64_t count, DType dtype, AllocateResult output,
                        const CollectiveOptions& options) {
  return into(std::move(output), request_for(OpKind::allgather, options, count, dtype), input);
}

Submission reducescatter_of(const void* input, std::int64_t count, DType dtype,
                            AllocateResult output, const AllreduceOptions& options) {
  return into(std::move(output), reduction_for(OpKind::reducescatter, options, count, dtype),
              input);
}

Submission alltoall_of(const void* input, std::span<const std::int64_t> splits, DType dtype,
                       AllocateResult output, std::vector<std::int64_t>& received,
                       const CollectiveOptions& options) {
  std::int64_t count = 0;
  for (const std::int64_t split : splits) count += split;
  Submission submission =
      into(std::move(output), request_for(OpKind::alltoall, options, count, dtype), input);
  submission.request.splits.assign(splits.begin(), splits.end());
  submission.report = [&received](std::span<const std::int64_t> counts) {
    received.assign(counts.begin(), counts.end());
  };
  return submission;
}

Submission barrier_of(const CollectiveOptions& options) {
  Submission submission;
  submission.request = request_for(OpKind::barrier, options, 0, DType::u8);
  submission.request.shape.clear();
  return submission;
}

}  // namespace hvd::detail
