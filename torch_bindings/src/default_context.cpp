// The forms for the default context.
#include <hvd/hvd.hpp>
#include <hvd/torch/collectives.hpp>

namespace hvd {

torch::Tensor allreduce(const torch::Tensor& tensor, const AllreduceOptions& options) {
  return allreduce(context(), tensor, options);
}

TensorWork allreduce_async(const torch::Tensor& tensor, const AllreduceOptions& options) {
  return allreduce_async(context(), tensor, options);
}

torch::Tensor allreduce_(const torch::Tensor& tensor, const AllreduceOptions& options) {
  return allreduce_(context(), tensor, options);
}

TensorWork allreduce_async_(const torch::Tensor& tensor, const AllreduceOptions& options) {
  return allreduce_async_(context(), tensor, options);
}

torch::Tensor allgather(const torch::Tensor& tensor, const std::string& name) {
  return allgather(context(), tensor, name);
}

TensorWork allgather_async(const torch::Tensor& tensor, const std::string& name) {
  return allgather_async(context(), tensor, name);
}

torch::Tensor broadcast(const torch::Tensor& tensor, int root, const std::string& name) {
  return broadcast(context(), tensor, root, name);
}

TensorWork broadcast_async(const torch::Tensor& tensor, int root, const std::string& name) {
  return broadcast_async(context(), tensor, root, name);
}

torch::Tensor broadcast_(const torch::Tensor& tensor, int root, const std::string& name) {
  return broadcast_(context(), tensor, root, name);
}

TensorWork broadcast_async_(const torch::Tensor& tensor, int root, const std::string& name) {
  return broadcast_async_(context(), tensor, root, name);
}

}  // namespace hvd
