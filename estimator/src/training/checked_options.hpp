// Checks the parameters of an estimator.
#pragma once

#include <nlohmann/json.hpp>

#include <hvd/estimator/estimator_options.hpp>

namespace hvd::detail {

/// Throws Errc::invalid_argument, naming the parameter and its value.
void check_options(const EstimatorOptions& options);

/// Throws Errc::invalid_argument, naming the parameter, for an empty name and for a name that
/// occurs twice.
void check_names(const char* parameter, const std::vector<std::string>& names);

[[nodiscard]] Columns columns_of(const EstimatorOptions& options);
/// Returns the names of the output columns, which are derived from the labels when the options have
/// none. Throws Errc::invalid_argument when there is another number of names than of outputs.
[[nodiscard]] std::vector<std::string> output_cols_of(const EstimatorOptions& options,
                                                      std::size_t outputs);

/// Describes the parameters that must be the same on all ranks.
[[nodiscard]] nlohmann::ordered_json description_of(const EstimatorOptions& options);
/// Describes the parameters that cannot change when a run is resumed, namely those that choose the
/// validation rows and the columns.
[[nodiscard]] nlohmann::ordered_json lasting_of(const EstimatorOptions& options);

}  // namespace hvd::detail
