// One collective on a tensor, ready to be submitted.
#pragma once

#include <memory>
#include <vector>

#include <hvd/core/context.hpp>
#include <hvd/torch/collectives.hpp>

namespace hvd {

enum class Form { copy, in_place };

struct Operation {
  Submission submission;
  std::shared_ptr<torch::Tensor> result;
  torch::Tensor overwritten;                            ///< in place only
  std::shared_ptr<std::vector<std::int64_t>> received;  ///< alltoall only
};

// Each throws what is wrong with the tensor, naming the operation; nothing is sent yet.
[[nodiscard]] Operation allreduce_operation(const torch::Tensor& tensor,
                                            const AllreduceOptions& options,
                                            Compression compression, Form form);
[[nodiscard]] Operation broadcast_operation(const torch::Tensor& tensor, int root,
                                            const CollectiveOptions& options, Form form);
[[nodiscard]] Operation allgather_operation(const torch::Tensor& tensor,
                                            const CollectiveOptions& options);
[[nodiscard]] Operation reducescatter_operation(const torch::Tensor& tensor,
                                                const AllreduceOptions& options,
                                                Compression compression);
/// Without splits they are even; the context knows how many ranks there are.
[[nodiscard]] Operation alltoall_operation(const Context& context, const torch::Tensor& tensor,
                                           torch::IntArrayRef splits,
                                           const CollectiveOptions& options);

[[nodiscard]] TensorWork start(Context& context, Operation operation);
/// On the calling thread where it can be.
torch::Tensor run(Context& context, Operation operation);
/// All or nothing is submitted.
[[nodiscard]] std::vector<TensorWork> start_group(Context& context,
                                                  std::vector<Operation> operations,
                                                  const std::string& name);

}  // namespace hvd
