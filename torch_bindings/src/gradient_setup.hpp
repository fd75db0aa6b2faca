// What a `GradientReducer` works out before it begins.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <torch/optim/optimizer.h>

#include <hvd/torch/gradient_reducer.hpp>

#include "compare_ranks.hpp"

namespace hvd {

inline constexpr std::string_view kDistributedOptimizer = "DistributedOptimizer";

/// Throws Errc::invalid_argument with who said it.
[[noreturn]] void misuse(const std::string& message, std::string_view who = kDistributedOptimizer);

/// Throws Errc::invalid_argument for options out of range.
void check(const DistributedOptimizerOptions& options);

[[nodiscard]] std::size_t parameter_count(const torch::optim::Optimizer& optimizer);

using ParameterGroups = std::vector<torch::optim::OptimizerParamGroup>;

/// The groups' parameters with their names, in the order of the names. Throws
/// Errc::invalid_argument for empty, repeated and missing names and for parameters that another
/// optimizer reduces, Errc::unsupported for dtypes.
[[nodiscard]] NamedTensors parameters_of(const ParameterGroups& groups, const NamedTensors& named,
                                         std::string_view who = kDistributedOptimizer);

/// Which group each parameter is in, -1: none. Throws Errc::invalid_argument for a name that is in
/// two groups or not there.
[[nodiscard]] std::vector<int> groups_of(const NamedTensors& parameters,
                                         const DistributedOptimizerOptions& options);

/// What ranks must have in common.
[[nodiscard]] std::vector<NamedDigest> describe(const NamedTensors& parameters,
                                                const DistributedOptimizerOptions& options);

}  // namespace hvd
