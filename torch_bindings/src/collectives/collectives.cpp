#include <hvd/torch/collectives.hpp>

#include "collectives/collective_autograd.hpp"
#include "collectives/operation.hpp"

namespace hvd {

using namespace detail;

TensorWork allreduce_async(Context& context, const torch::Tensor& tensor,
                           const AllreduceOptions& options, Compression compression) {
  return start(context, allreduce_operation(tensor, options, compression, Form::copy));
}

TensorWork allreduce_async_(Context& context, const torch::Tensor& tensor,
                            const AllreduceOptions& options, Compression compression) {
  return start(context, allreduce_operation(tensor, options, compression, Form::in_place));
}

TensorWork broadcast_async(Context& context, const torch::Tensor& tensor, int root,
                           const CollectiveOptions& options) {
  return start(context, broadcast_operation(tensor, root, options, Form::copy));
}

TensorWork broadcast_async_(Context& context, const torch::Tensor& tensor, int root,
                            const CollectiveOptions& options) {
  return start(context, broadcast_operation(tensor, root, options, Form::in_place));
}

TensorWork allgather_async(Context& context, const torch::Tensor& tensor,
                           const CollectiveOptions& options) {
  return start(context, allgather_operation(tensor, options));
}

TensorWork reducescatter_async(Context& context, const torch::Tensor& tensor,
                               const AllreduceOptions& options, Compression compression) {
  return start(context, reducescatter_operation(tensor, options, compression));
}

AlltoallWork alltoall_async(Context& context, const torch::Tensor& tensor,
                            torch::IntArrayRef splits, const CollectiveOptions& options) {
  Operation operation = alltoall_operation(context, tensor, splits, options);
  auto received = operation.received;
  return {start(context, std::move(operation)), std::move(received)};
}

torch::Tensor allreduce_(Context& context, const torch::Tensor& tensor,
                         const AllreduceOptions& options, Compression compression) {
  return run(context, allreduce_operation(tensor, options, compression, Form::in_place));
}

torch::Tensor broadcast_(Context& context, const torch::Tensor& tensor, int root,
                         const CollectiveOptions& options) {
  return run(context, broadcast_operation(tensor, root, options, Form::in_place));
}

torch::Tensor allreduce(Context& context, const torch::Tensor& tensor,
                        const AllreduceOptions& options, Compression compression) {
  const auto forward = [&] {
    return run(context, allreduce_operation(tensor, options, compression, Form::copy));
  };
  if (!is_recorded({tensor})) return forward();
  return record(
             {tensor}, [&] { return Tensors{forward()}; },
             allreduce_backward(context, options, compression))
      .front();
}

torch::Tensor broadcast(Context& context, const torch::Tensor& tensor, int root,
                        const CollectiveOptions& options) {
  const auto forward = [&] {
    return run(context, broadcast_operation(tensor, root, options, Form::copy));
  };
  if (!is_recorded({tensor})) return forward();
  return record(
             {tensor}, [&] { return Tensors{forward()}; },
             broadcast_backward(context, root, options))
      .front();
}

torch::Tensor allgather(Context& context, const torch::Tensor& tensor,
                        const CollectiveOptions& options) {
  const auto forward = [&] { return run(context, allgather_operation(tensor, options)); };
  if (!is_recorded({tensor})) return forward();
  return record(
             {tensor}, [&] { return Tensors{forward()}; },
             allgather_backward(context, {tensor}, options))
      .front();
}

torch::Tensor reducescatter(Context& context, const torch::Tensor& tensor,
                            const AllreduceOptions& options, Compression compression) {
  const auto forward = [&] {
    return run(context, reducescatter_operation(tensor, options, compression));
  };
  if (!is_recorded({tensor})) return forward();
  return record(
             {tensor}, [&] { return Tensors{forward()}; }, reducescatter_backward(context, options))
      .front();
}

AlltoallResult alltoall(Context& context, const torch::Tensor& tensor, torch::IntArrayRef splits,
                        const CollectiveOptions& options) {
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
      {tensor}, [&] { return Tensors{forward()}; }, alltoall_backward(context, received, options));
  return {std::move(output.front()), received->front()};
}

}  // namespace hvd
