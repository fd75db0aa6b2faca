#include <fmt/format.h>

#include <hvd/torch/grouped_collectives.hpp>

#include "collectives/collective_autograd.hpp"
#include "collectives/operation.hpp"

namespace hvd {

using namespace detail;

namespace {

/// Returns `make_operation(tensor, options)` for each tensor, with its own name in the options.
template <class Options, class MakeOperation>
std::vector<Operation> operations_for(const Tensors& tensors, const Options& options,
                                      MakeOperation make_operation) {
  std::vector<Operation> operations;
  operations.reserve(tensors.size());
  for (const torch::Tensor& tensor : tensors) {
    Options one = options;
    if (!one.name.empty()) one.name = fmt::format("{}/{}", options.name, operations.size());
    operations.push_back(make_operation(tensor, one));
  }
  return operations;
}

TensorGroupWork start_allreduce(const Tensors& tensors, const AllreduceOptions& options,
                                Compression compression, Form form) {
  Context& context = context_of(options);
  auto operations =
      operations_for(tensors, options, [&](const torch::Tensor& tensor, const auto& one) {
        return allreduce_operation(tensor, one, compression, form);
      });
  return TensorGroupWork(start_group(context, std::move(operations), options.name));
}

TensorGroupWork start_broadcast(const Tensors& tensors, int root, const CollectiveOptions& options,
                                Form form) {
  Context& context = context_of(options);
  auto operations =
      operations_for(tensors, options, [&](const torch::Tensor& tensor, const auto& one) {
        return broadcast_operation(tensor, root, one, form);
      });
  return TensorGroupWork(start_group(context, std::move(operations), options.name));
}

}  // namespace

TensorGroupWork grouped_allreduce_async(const Tensors& tensors, const AllreduceOptions& options,
                                        Compression compression) {
  return start_allreduce(tensors, options, compression, Form::copy);
}

TensorGroupWork grouped_allreduce_async_(const Tensors& tensors, const AllreduceOptions& options,
                                         Compression compression) {
  return start_allreduce(tensors, options, compression, Form::in_place);
}

TensorGroupWork grouped_broadcast_async(const Tensors& tensors, int root,
                                        const CollectiveOptions& options) {
  return start_broadcast(tensors, root, options, Form::copy);
}

TensorGroupWork grouped_broadcast_async_(const Tensors& tensors, int root,
                                         const CollectiveOptions& options) {
  return start_broadcast(tensors, root, options, Form::in_place);
}

TensorGroupWork grouped_allgather_async(const Tensors& tensors, const CollectiveOptions& options) {
  Context& context = context_of(options);
  auto operations =
      operations_for(tensors, options, [](const torch::Tensor& tensor, const auto& one) {
        return allgather_operation(tensor, one);
      });
  return TensorGroupWork(start_group(context, std::move(operations), options.name));
}

TensorGroupWork grouped_reducescatter_async(const Tensors& tensors, const AllreduceOptions& options,
                                            Compression compression) {
  Context& context = context_of(options);
  auto operations =
      operations_for(tensors, options, [&](const torch::Tensor& tensor, const auto& one) {
        return reducescatter_operation(tensor, one, compression);
      });
  return TensorGroupWork(start_group(context, std::move(operations), options.name));
}

AlltoallGroupWork grouped_alltoall_async(const Tensors& tensors, const SplitsOfEach& splits,
                                         const CollectiveOptions& options) {
  Context& context = context_of(options);
  if (!splits.empty() && splits.size() != tensors.size()) {
    throw Error(Errc::invalid_argument,
                fmt::format("grouped_alltoall '{}': {} splits for {} tensors", options.name,
                            splits.size(), tensors.size()));
  }
  std::vector<std::shared_ptr<std::vector<std::int64_t>>> received;
  auto operations =
      operations_for(tensors, options, [&](const torch::Tensor& tensor, const auto& one) {
        const torch::IntArrayRef own =
            splits.empty() ? torch::IntArrayRef() : torch::IntArrayRef(splits[received.size()]);
        Operation operation = alltoall_operation(context, tensor, own, one);
        received.push_back(operation.received);
        return operation;
      });
  const std::vector<TensorWork> started = start_group(context, std::move(operations), options.name);
  std::vector<AlltoallWork> works;
  for (std::size_t i = 0; i < started.size(); ++i) works.emplace_back(started[i], received[i]);
  return AlltoallGroupWork(std::move(works));
}

Tensors grouped_allreduce_(const Tensors& tensors, const AllreduceOptions& options,
                           Compression compression) {
  return grouped_allreduce_async_(tensors, options, compression).wait();
}

Tensors grouped_broadcast_(const Tensors& tensors, int root, const CollectiveOptions& options) {
  return grouped_broadcast_async_(tensors, root, options).wait();
}

Tensors grouped_allreduce(const Tensors& tensors, const AllreduceOptions& options,
                          Compression compression) {
  const auto forward = [&] {
    return grouped_allreduce_async(tensors, options, compression).wait();
  };
  if (!is_recorded(tensors)) return forward();
  return record(tensors, forward, allreduce_backward(options, compression));
}

Tensors grouped_allgather(const Tensors& tensors, const CollectiveOptions& options) {
  const auto forward = [&] { return grouped_allgather_async(tensors, options).wait(); };
  if (!is_recorded(tensors)) return forward();
  return record(tensors, forward, allgather_backward(tensors, options));
}

Tensors grouped_broadcast(const Tensors& tensors, int root, const CollectiveOptions& options) {
  const auto forward = [&] { return grouped_broadcast_async(tensors, root, options).wait(); };
  if (!is_recorded(tensors)) return forward();
  return record(tensors, forward, broadcast_backward(root, options));
}

Tensors grouped_reducescatter(const Tensors& tensors, const AllreduceOptions& options,
                              Compression compression) {
  const auto forward = [&] {
    return grouped_reducescatter_async(tensors, options, compression).wait();
  };
  if (!is_recorded(tensors)) return forward();
  return record(tensors, forward, reducescatter_backward(options));
}

std::vector<AlltoallResult> grouped_alltoall(const Tensors& tensors, const SplitsOfEach& splits,
                                             const CollectiveOptions& options) {
  const auto received = std::make_shared<SplitsOfEach>();
  const auto forward = [&] {
    Tensors outputs;
    for (AlltoallResult& each : grouped_alltoall_async(tensors, splits, options).wait()) {
      outputs.push_back(std::move(each.output));
      received->push_back(std::move(each.received_splits));
    }
    return outputs;
  };
  Tensors outputs = is_recorded(tensors)
                        ? record(tensors, forward, alltoall_backward(received, options))
                        : forward();
  std::vector<AlltoallResult> results;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    results.push_back({std::move(outputs[i]), (*received)[i]});
  }
  return results;
}

}  // namespace hvd
