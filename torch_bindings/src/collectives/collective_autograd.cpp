#include "collectives/collective_autograd.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "collectives/operation.hpp"

namespace hvd::detail {

namespace {

/// Autograd functions can save values of LibTorch's types only. This type carries a `Backward` in
/// one.
struct SavedBackward final : torch::CustomClassHolder {
  explicit SavedBackward(Backward function) : call(std::move(function)) {}
  Backward call;
};

struct CollectiveFunction : torch::autograd::Function<CollectiveFunction> {
  static Tensors forward(torch::autograd::AutogradContext* saved, at::TensorList /*inputs*/,
                         const Forward& forward, const c10::IValue& backward) {
    saved->saved_data["backward"] = backward;
    return forward();
  }
  static Tensors backward(torch::autograd::AutogradContext* saved, const Tensors& gradients) {
    const auto backward = c10::static_intrusive_pointer_cast<SavedBackward>(
        saved->saved_data["backward"].toCapsule());
    Tensors all = backward->call(gradients);
    all.resize(all.size() + 2);  // the last two arguments of forward() are no tensors
    return all;
  }
};

std::string backward_name(const std::string& name, const char* what = "backward") {
  return name.empty() ? name : fmt::format("{}/{}", name, what);
}

CollectiveOptions backward_of(const CollectiveOptions& options) {
  return {.name = backward_name(options.name), .process_set = options.process_set};
}

/// Reduces the tensors as a group; a single tensor does not need the cost of one.
Tensors reduce(Context& context, const Tensors& tensors, const AllreduceOptions& options,
               Compression compression = Compression::none) {
  if (tensors.size() != 1) return grouped_allreduce(context, tensors, options, compression);
  return {allreduce(context, tensors.front(), options, compression)};
}

Tensors sum(Context& context, const Tensors& tensors, const CollectiveOptions& options) {
  return reduce(context, tensors,
                {.name = backward_name(options.name),
                 .op = ReduceOp::sum,
                 .process_set = options.process_set});
}

void require_linear(const char* operation, const AllreduceOptions& options) {
  if (options.op == ReduceOp::average || options.op == ReduceOp::sum) return;
  throw Error(Errc::unsupported, fmt::format("{} '{}': the op {} has no gradient", operation,
                                             options.name, to_string(options.op)));
}

}  // namespace

bool is_recorded(const Tensors& inputs) {
  return torch::GradMode::is_enabled() &&
         std::any_of(inputs.begin(), inputs.end(), [](const torch::Tensor& input) {
           return input.defined() && input.requires_grad();
         });
}

Tensors record(const Tensors& inputs, const Forward& forward, Backward backward) {
  return CollectiveFunction::apply(
      at::TensorList(inputs), forward,
      c10::IValue::make_capsule(c10::make_intrusive<SavedBackward>(std::move(backward))));
}

Backward allreduce_backward(Context& context, const AllreduceOptions& options,
                            Compression compression) {
  return [&context, options, compression](const Tensors& gradients) {
    require_linear("allreduce", options);
    AllreduceOptions same = options;
    same.name = backward_name(options.name);
    return reduce(context, gradients, same, compression);
  };
}

Backward broadcast_backward(Context& context, int root, const CollectiveOptions& options) {
  return [&context, root, options](const Tensors& gradients) {
    Tensors sums = sum(context, gradients, options);
    // A product with zero would keep a NaN, so the zeros are new tensors.
    if (context.rank() != root) {
      for (torch::Tensor& each : sums) each = torch::zeros_like(each);
    }
    return sums;
  };
}

Backward allgather_backward(Context& context, const Tensors& inputs,
                            const CollectiveOptions& options) {
  std::vector<Shape> shapes;
  std::vector<std::int64_t> rows;
  for (const torch::Tensor& input : inputs) {
    shapes.push_back(input.sizes().vec());
    rows.push_back(input.dim() == 0 ? 1 : input.size(0));
  }
  return [&context, shapes, rows, options](const Tensors& gradients) {
    const torch::Tensor mine = torch::tensor(rows, torch::kInt64).unsqueeze(0);
    const TensorWork rows_of_all = allgather_async(
        context, mine, {backward_name(options.name, "backward/rows"), options.process_set});
    const Tensors sums = sum(context, gradients, options);
    const std::int64_t index = rank_in_set(context, options.process_set).index;
    const torch::Tensor first = rows_of_all.wait().slice(0, 0, index).sum(0);
    Tensors slices;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto at = first[static_cast<std::int64_t>(i)].item<std::int64_t>();
      slices.push_back(sums[i].narrow(0, at, rows[i]).reshape(shapes[i]));
    }
    return slices;
  };
}

Backward reducescatter_backward(Context& context, const AllreduceOptions& options) {
  return [&context, options](const Tensors& gradients) {
    require_linear("reducescatter", options);
    double factor = options.prescale * options.postscale;
    if (options.op == ReduceOp::average) {
      factor /= static_cast<double>(context.ranks_of(options.process_set).size());
    }
    Tensors scaled;
    for (const torch::Tensor& gradient : gradients) scaled.push_back(gradient * factor);
    const CollectiveOptions gather{backward_name(options.name), options.process_set};
    if (scaled.size() != 1) return grouped_allgather(context, scaled, gather);
    return Tensors{allgather(context, scaled.front(), gather)};
  };
}

Backward alltoall_backward(Context& context, std::shared_ptr<SplitsOfEach> received,
                           const CollectiveOptions& options) {
  return [&context, received = std::move(received), options](const Tensors& gradients) {
    Tensors returned;
    if (gradients.size() == 1) {
      returned.push_back(
          alltoall(context, gradients.front(), received->front(), backward_of(options)).output);
      return returned;
    }
    for (AlltoallResult& each :
         grouped_alltoall(context, gradients, *received, backward_of(options))) {
      returned.push_back(std::move(each.output));
    }
    return returned;
  };
}

}  // namespace hvd::detail
