// The parameters of an estimator, checked.
#pragma once

#include <nlohmann/json.hpp>

#include <hvd/estimator/estimator_options.hpp>

namespace hvd {

/// Throws Errc::invalid_argument naming the parameter and its value.
void check_options(const EstimatorOptions& options);

[[nodiscard]] Columns columns_of(const EstimatorOptions& options);
/// For so many outputs, when the options name none. Throws Errc::invalid_argument for other
/// numbers.
[[nodiscard]] std::vector<std::string> output_cols_of(const EstimatorOptions& options,
                                                      std::size_t outputs);

/// What has to be the same on all ranks.
[[nodiscard]] nlohmann::ordered_json description_of(const EstimatorOptions& options);
/// What a run cannot change once it has begun: which rows validate, which columns are read.
[[nodiscard]] nlohmann::ordered_json lasting_of(const EstimatorOptions& options);

}  // namespace hvd
