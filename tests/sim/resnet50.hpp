// The gradients of a ResNet-50 (He et al. 2015) with 1,000 classes: 161 tensors.
#pragma once

#include <vector>

#include <hvd/core/request.hpp>

namespace hvd::sim {

/// In the order of the backward pass.
[[nodiscard]] std::vector<Request> resnet50_gradients();

}  // namespace hvd::sim
