// Gives every rank the same optimizer state.
#pragma once

#include <torch/optim/optimizer.h>

#include <hvd/ops/default_context.hpp>

namespace hvd {

/// Gives every rank the state and the options of rank `root`'s optimizer: the options of each
/// parameter group and the defaults for groups that are added later. The optimizer is an Adagrad,
/// Adam, AdamW, LBFGS, RMSprop or SGD, or derives from one. State that root does not have is
/// dropped, and state that another rank does not have is created; nothing is stepped.
///
/// The ranks exchange a list of numbers and tensors, field by field. They do not exchange
/// LibTorch's archives, because loading one can run the TorchScript that it contains.
///
/// Collective. Every rank throws Errc::mismatch when optimizer type, groups or parameter shapes
/// differ, and Errc::unsupported for another type of optimizer. A rank that throws keeps its state.
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root = 0,
                               Context& context = hvd::context());

}  // namespace hvd
