#include <hvd/torch/collectives.hpp>

#include "collectives/collective_autograd.hpp"
#include "collectives/operation.hpp"

namespace hvd {

using namespace detail;

TensorWork allreduce_async(const torch::Tensor& tensor, const AllreduceOptions& options,
                           Compression compression) {
  Context& context = context_of(options);
  return start(context, allreduce_operation(tensor, options, compression, Form::copy));
}

TensorWork allreduce_async_(const torch::Tensor& tensor, const AllreduceOptions& options,
                            Compression compression) {
  Context& context = context_of(options);
  return start(context, allreduce_operation(tensor, options, compression, Form::in_place));
}

TensorWork broadcast_async(const torch::Tensor& tensor, int root,
                           const CollectiveOptions& options) {
  Context& context = context_of(options);
  return start(context, broadcast_operation(tensor, root, options, Form::copy));
}

TensorWork broadcast_async_(const torch::Tensor& tensor, int root,
                            const CollectiveOptions& options) {
  Context& context = context_of(options);
  return start(context, broadcast_operation(tensor, root, options, Form::in_place));
}

TensorWork allgather_async(const torch::Tensor& tensor, const CollectiveOptions& options) {
  Context& context = context_of(options);
  return start(context, allgather_operation(tensor, options));
}

TensorWork reducescatter_async(const torch::Tensor& tensor, const AllreduceOptions& options,
                               Compression compression) {
  Context& context = context_of(options);
  return start(context, reducescatter_operation(tensor, options, compression));
}

AlltoallWork alltoall_async(const torch::Tensor& tensor, torch::IntArrayRef splits,
                            const CollectiveOptions& options) {
  Context& context = context_of(options);
  Operation operation = alltoall_operation(context, tensor, splits, options);
  auto received = operation.received;
  return {start(context, std::move(operation)), std::move(received)};
}

torch::Tensor allreduce_(const torch::Tensor& tensor, const AllreduceOptions& options,
                         Compression compression) {
  Context& context = context_of(options);
  return run(context, allreduce_operation(tensor, options, compression, Form::in_place));
}

torch::Tensor broadcast_(const torch::Tensor& tensor, int root, const CollectiveOptions& options) {
  Context& context = context_of(options);
  return run(context, broadcast_operation(tensor, root, options, Form::in_place));
}

torch::Tensor allreduce(const torch::Tensor& tensor, const AllreduceOptions& options,
                        Compression compression) {
  Context& context = context_of(options);
  const auto forward = [&] {
    return run(context, allreduce_operation(tensor, options, compression, Form::copy));
  };
  if (!is_recorded({tensor})) return forward();
  return record(
             {tensor}, [&] { return Tensors{forward()}; }, allreduce_backward(options, compression))
      .front();
}

torch::Tensor broadcast(const torch::Tensor& tensor, int root, const CollectiveOptions& options) {
  Context& context = context_of(options);
  const auto forward = [&] {
    return run(context, broadcast_operation(tensor, root, options, Form::copy));
  };
  if (!is_recorded({tensor})) return forward();
  return record(
             {tensor}, [&] { return Tensors{forward()}; }, broadcast_backward(root, options))
      .front();
}

torch::Tensor allgather(const torch::Tensor& tensor, const CollectiveOptions& options) {
  Context& context = context_of(options);
  const auto forward = [&] { return run(context, allgather_operation(tensor, options)); };
  if (!is_recorded({tensor})) return forward();
  return record(
             {tensor}, [&] { return Tensors{forward()}; }, allgather_backward({tensor}, options))
      .front();
}

torch::Tensor reducescatter(const torch::Tensor& tensor, const AllreduceOptions& options,
                            Compression compression) {
  Context& context = context_of(options);
  const auto forward = [&] {
    return run(context, reducescatter_operation(tensor, options, compression));
  };
  if (!is_recorded({tensor})) return forward();
  return record(
             {tensor}, [&] { return Tensors{forward()}; }, reducescatter_backward(options))
      .front();
}

AlltoallResult alltoall(const torch::Tensor& tensor, torch::IntArrayRef splits,
                        const CollectiveOptions& options) {
  Context& context = context_of(options);
  const auto received = std::make_shared<SplitsOfEach>(1);
  const auto forward = [&] {
    Operation operation = alltoall_operation(context, tensor, splits, options);
    const auto rows = operation.received;
    torch::Tensor output = run(context, std::move(operation));
    received->front() = *rows;
    return output;
  };
  if (!is_recorded({tensor})) {
    torch::Tensor output = forward();
    return {std::move(output), received->front()};
  }
  Tensors output = record(
      {tensor}, [&] { return Tensors{forward()}; }, alltoall_backward(received, options));
  return {std::move(output.front()), received->front()};
}

}  // namespace hvd
