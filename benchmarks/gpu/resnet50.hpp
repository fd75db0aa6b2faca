// Lists the tensor sizes of a model that is common in benchmarks.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd {

/// Returns the number of elements of each of ResNet-50's 161 parameters (He et al. 2015, table 1),
/// 25.6 million in all.
[[nodiscard]] std::vector<std::int64_t> resnet50_counts();

}  // namespace hvd
