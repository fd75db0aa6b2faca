// Gives every rank the same parameters.
#pragma once

#include <torch/nn/module.h>

#include <hvd/ops/default_context.hpp>
#include <hvd/torch/named_tensors.hpp>

namespace hvd {

/// Overwrites the tensors with those of rank `root`, in place; autograd does not record it. All
/// broadcasts are submitted before the first one is waited for, so small tensors are fused. Names,
/// shapes and dtypes must be the same on every rank. Collective; throws what the collectives throw.
void broadcast_parameters(const NamedTensors& tensors, int root = 0,
                          Context& context = hvd::context());

/// Overwrites the parameters and buffers of a module.
void broadcast_parameters(const torch::nn::Module& module, int root = 0,
                          Context& context = hvd::context());
void broadcast_parameters(const torch::jit::Module& module, int root = 0,
                          Context& context = hvd::context());

void broadcast_parameters(const ModulePointer auto& module, int root = 0,
                          Context& context = hvd::context()) {
  broadcast_parameters(static_cast<const torch::nn::Module&>(*module), root, context);
}

}  // namespace hvd
