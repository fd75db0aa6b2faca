// Prepares a collective on a tensor, which is submitted later.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <hvd/core/context.hpp>
#include <hvd/torch/collectives.hpp>

namespace hvd::detail {

/// Says whether the result is a new tensor or overwrites the given one.
enum class Form { copy, in_place };

struct Operation {
  Submission submission;
  std::shared_ptr<torch::Tensor> result;
  torch::Tensor overwritten;  ///< the given tensor, when the operation is in place
  std::shared_ptr<std::vector<std::int64_t>> received;  ///< the received splits of an alltoall
};

// Each of these throws an error that names the operation if the tensor is not accepted. They send
// nothing.
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
/// Without splits the rows are divided evenly among the ranks of the process set.
[[nodiscard]] Operation alltoall_operation(const Context& context, const torch::Tensor& tensor,
                                           torch::IntArrayRef splits,
                                           const CollectiveOptions& options);

/// Returns the request of a reduction, without its tensor.
[[nodiscard]] Request request_for(OpKind kind, const AllreduceOptions& options);

/// Submits the operation.
[[nodiscard]] TensorWork start(Context& context, Operation operation);
/// Runs the operation on the calling thread where that is possible, and waits for it.
torch::Tensor run(Context& context, Operation operation);
/// On a GPU it submits the operation and waits as `StreamWaits` does, if that `may_order`;
/// otherwise it is `run`. An error after the launch ends the context, so a later operation or the
/// shutdown throws it.
torch::Tensor run_in_stream(Context& context, Operation operation);
/// Submits all operations, or none when one of them is refused.
[[nodiscard]] std::vector<TensorWork> start_group(Context& context,
                                                  std::vector<Operation> operations,
                                                  const std::string& name);

/// The index of this rank among the ranks of a process set, and the number of these ranks.
struct RankInSet {
  std::int64_t index = 0;
  std::int64_t size = 1;
};
[[nodiscard]] RankInSet rank_in_set(const Context& context, std::int32_t process_set);

}  // namespace hvd::detail
