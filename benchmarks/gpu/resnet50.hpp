// The tensors of a model that everybody measures with.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd {

/// Elements of each of ResNet-50's 161 parameters (He et al. 2015, table 1), 25.6 million together.
[[nodiscard]] std::vector<std::int64_t> resnet50_counts();

}  // namespace hvd
