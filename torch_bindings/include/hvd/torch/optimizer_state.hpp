// The same optimizer state on every rank.
#pragma once

#include <torch/optim/optimizer.h>

#include <hvd/core/context.hpp>

namespace hvd {

/// Gives every rank the options (of each parameter group, with their type, and the defaults for
/// groups added later) and the state of rank `root`'s optimizer: Adagrad, Adam, AdamW, LBFGS,
/// RMSprop, SGD and what derives from them. State that root does not have yet is dropped, state
/// that a rank does not have yet is created; no step is made.
///
/// What travels is a list of numbers and tensors, written and read field by field. LibTorch's
/// own archives are not used: loading one can run TorchScript that came with it.
///
/// Collective. Throws on every rank: Errc::mismatch when optimizer type, groups or parameter shapes
/// differ, Errc::unsupported for another type of optimizer. A rank that throws is left as it was.
void broadcast_optimizer_state(Context& context, torch::optim::Optimizer& optimizer, int root = 0);
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root = 0);

}  // namespace hvd
