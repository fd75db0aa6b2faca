// Checks and describes the options and parameters of a distributed optimizer, before it begins.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <torch/optim/optimizer.h>

#include <hvd/torch/gradient_reducer.hpp>

#include "state/agreement.hpp"

namespace hvd::detail {

inline constexpr std::string_view kDistributedOptimizer = "DistributedOptimizer";
inline constexpr std::string_view kDataParallel = "DistributedDataParallel";

/// Throws Errc::invalid_argument; `who` begins the message.
[[noreturn]] void misuse(const std::string& message, std::string_view who = kDistributedOptimizer);

/// Throws Errc::invalid_argument for options out of range.
void check_options(const DistributedOptimizerOptions& options, std::string_view who);
/// Checks the options that all distributed optimizers have.
void check_reduction(ReduceOp op, int backward_passes_per_step, bool weighted,
                     std::string_view who);

[[nodiscard]] std::size_t parameter_count(const torch::optim::Optimizer& optimizer);

using ParameterGroups = std::vector<torch::optim::OptimizerParamGroup>;

/// Returns the groups' parameters with their names, in the order of the names. Throws
/// Errc::invalid_argument for empty, repeated and missing names and for parameters that another
/// optimizer reduces, and Errc::unsupported for dtypes that cannot be reduced.
[[nodiscard]] NamedTensors parameters_of(const ParameterGroups& groups, const NamedTensors& named,
                                         std::string_view who = kDistributedOptimizer);

/// Returns the distinct parameters in their order. Throws likewise.
[[nodiscard]] NamedTensors checked_parameters(const NamedTensors& named, std::string_view who);

/// Returns the number of the group of each parameter, or -1. Throws Errc::invalid_argument for a
/// name that is in two groups or does not exist.
[[nodiscard]] std::vector<int> groups_of(const NamedTensors& parameters,
                                         const DistributedOptimizerOptions& options);

/// Returns the digests of what must be the same on all ranks: of the parameters with their groups,
/// and of the other options.
[[nodiscard]] std::vector<NamedDigest> describe_parameters(
    const NamedTensors& parameters, const DistributedOptimizerOptions& options);
[[nodiscard]] std::vector<NamedDigest> describe_options(const DistributedOptimizerOptions& options);
[[nodiscard]] NamedDigest digest_of_option(std::string_view name, std::string_view value);

/// Checks that all ranks of the set construct the same optimizer now, and returns the beginning of
/// the names of its collectives: `name_prefix` and its instance, a number that no other optimizer
/// of these ranks has. `kind` names the class of the optimizer and `mine` holds the digests of its
/// parameters and options. `DistributedOptimizer` and `ShardedOptimizer` use the same collectives
/// here, so that ranks which construct them in another order notice it instead of waiting for each
/// other. Collective; throws Errc::mismatch.
[[nodiscard]] std::string agree_on_optimizer(Context& context, std::vector<NamedDigest> mine,
                                             std::int32_t process_set, const std::string& kind,
                                             const std::string& name_prefix);
/// Returns the name of LibTorch's optimizer that this one is, derives from, or wraps.
[[nodiscard]] std::string_view kind_of(const torch::optim::Optimizer& optimizer);

/// Returns the factor that turns an average over `planned` backward passes into one over `passes`,
/// the number of passes before a step at the end of an epoch. Passes are counted by parameter, so
/// it is that of the parameter which this rank has used in most of them. The factor is 1 when
/// gradients are not averaged over passes.
[[nodiscard]] double factor_of_fewer_passes(bool average, int passes, int planned) noexcept;

}  // namespace hvd::detail
