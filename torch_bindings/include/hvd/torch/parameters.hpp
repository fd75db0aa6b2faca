// The same parameters on every rank.
#pragma once

#include <memory>

#include <torch/nn/pimpl.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/named_tensors.hpp>

namespace hvd {

/// Overwrites the tensors with those of rank `root`, in place and without a trace in autograd. All
/// are submitted before the first is waited for, so small ones travel together. Names, shapes and
/// dtypes must be the same on every rank. Collective; throws as the collectives do.
void broadcast_parameters(Context& context, const NamedTensors& tensors, int root = 0);
void broadcast_parameters(const NamedTensors& tensors, int root = 0);

/// Parameters and buffers of a module.
void broadcast_parameters(Context& context, const torch::nn::Module& module, int root = 0);
void broadcast_parameters(const torch::nn::Module& module, int root = 0);

template <class Contained>
void broadcast_parameters(const torch::nn::ModuleHolder<Contained>& module, int root = 0) {
  broadcast_parameters(*module, root);
}

template <class Contained>
void broadcast_parameters(Context& context, const torch::nn::ModuleHolder<Contained>& module,
                          int root = 0) {
  broadcast_parameters(context, *module, root);
}

}  // namespace hvd
