#include "collectives/collective_autograd.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "collectives/operation.hpp"

namespace hvd::detail {

namespace {

/// Autograd functions can save only values of LibTorch's types, so this type wraps a `Backward`.
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
    all.resize(all.size() + 2);  // the last two arguments of forward() have no gradients
    return all;
  }
};

/// Returns the options with the context of this forward pass, which may be the default one.
template <class Options>
Options with_context(Options options) {
  options.context = &context_of(options);
  return options;
}

/// Returns the options of a collective in the backward pass.
template <class Options>
Options backward_of(Options options, const char* what = "backward") {
  if (!options.name.empty()) options.name = fmt::format("{}/{}", options.name, what);
  return options;
}

/// Reduces the tensors as a group, or a single tensor without one, which costs less.
Tensors reduce(const Tensors& tensors, const AllreduceOptions& options,
               Compression compression = Compression::none) {
  if (tensors.size() != 1) return grouped_allreduce(tensors, options, compression);
  return {allreduce(tensors.front(), options, compression)};
}

Tensors sum(const Tensors& tensors, const CollectiveOptions& options) {
  return reduce(tensors, {.name = options.name,
                          .op = ReduceOp::sum,
                          .process_set = options.process_set,
                          .context = options.context});
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

Backward allreduce_backward(const AllreduceOptions& options, Compression compression) {
  return [options = with_context(options), compression](const Tensors& gradients) {
    require_linear("allreduce", options);
    return reduce(gradients, backward_of(options), compression);
  };
}

Backward broadcast_backward(int root, const CollectiveOptions& options) {
  return [root, options = with_context(options)](const Tensors& gradients) {
    Tensors sums = sum(gradients, backward_of(options));
    // A product with zero would keep a NaN, so the zeros are new tensors.
    if (options.context->rank() != root) {
      for (torch::Tensor& each : sums) each = torch::zeros_like(each);
    }
    return sums;
  };
}

Backward allgather_backward(const Tensors& inputs, const CollectiveOptions& options) {
  std::vector<Shape> shapes;
  std::vector<std::int64_t> rows;
  for (const torch::Tensor& input : inputs) {
    shapes.push_back(input.sizes().vec());
    rows.push_back(input.dim() == 0 ? 1 : input.size(0));
  }
  return [shapes, rows, options = with_context(options)](const Tensors& gradients) {
    const torch::Tensor mine = torch::tensor(rows, torch::kInt64).unsqueeze(0);
    const TensorWork rows_of_all = allgather_async(mine, backward_of(options, "backward/rows"));
    const Tensors sums = sum(gradients, backward_of(options));
    const std::int64_t index = rank_in_set(*options.context, options.process_set).index;
    const torch::Tensor first = rows_of_all.wait().slice(0, 0, index).sum(0);
    Tensors slices;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto at = first[static_cast<std::int64_t>(i)].item<std::int64_t>();
      slices.push_back(sums[i].narrow(0, at, rows[i]).reshape(shapes[i]));
    }
    return slices;
  };
}

Backward reducescatter_backward(const AllreduceOptions& options) {
  return [options = with_context(options)](const Tensors& gradients) {
    require_linear("reducescatter", options);
    double factor = options.prescale * options.postscale;
    if (options.op == ReduceOp::average) {
      factor /= static_cast<double>(options.context->ranks_of(options.process_set).size());
    }
    Tensors scaled;
    for (const torch::Tensor& gradient : gradients) scaled.push_back(gradient * factor);
    const CollectiveOptions gather{.name = backward_of(options).name,
                                   .process_set = options.process_set,
                                   .context = options.context};
    if (scaled.size() != 1) return grouped_allgather(scaled, gather);
    return Tensors{allgather(scaled.front(), gather)};
  };
}

Backward alltoall_backward(const std::shared_ptr<SplitsOfEach>& received,
                           const CollectiveOptions& options) {
  return [received, options = with_context(options)](const Tensors& gradients) {
    Tensors returned;
    if (gradients.size() == 1) {
      returned.push_back(
          alltoall(gradients.front(), received->front(), backward_of(options)).output);
      return returned;
    }
    for (AlltoallResult& each : grouped_alltoall(gradients, *received, backward_of(options))) {
      returned.push_back(std::move(each.output));
    }
    return returned;
  };
}

}  // namespace hvd::detail
