#include <exception>

#include <hvd/hvd.hpp>
#include <hvd/torch/collectives.hpp>
#include <hvd/torch/parameters.hpp>

#include "broadcast_tensors.hpp"

namespace hvd {

void broadcast_tensors(Context& context, const NamedTensors& tensors, const std::string& prefix,
                       int root, std::int32_t process_set) {
  // All that was submitted has ended before the first error leaves: nothing is still being written
  // behind the caller.
  std::exception_ptr first;
  std::vector<TensorWork> works;
  try {
    for (const auto& [name, tensor] : tensors.items()) {
      works.push_back(broadcast_async_(context, tensor, root,
                                       {.name = prefix + name, .process_set = process_set}));
    }
  } catch (...) {
    first = std::current_exception();
  }
  for (const TensorWork& work : works) {
    try {
      work.wait();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void broadcast_parameters(Context& context, const NamedTensors& tensors, int root) {
  broadcast_tensors(context, tensors.distinct(), "parameter/", root);
}

void broadcast_parameters(const NamedTensors& tensors, int root) {
  broadcast_parameters(context(), tensors, root);
}

void broadcast_parameters(Context& context, const torch::nn::Module& module, int root) {
  broadcast_parameters(context, NamedTensors::of(module), root);
}

void broadcast_parameters(const torch::nn::Module& module, int root) {
  broadcast_parameters(context(), module, root);
}

}  // namespace hvd
