// What hvd_spark asks of a program: parameters in JSON, over those of the program.
#pragma once

#include <optional>
#include <string>

#include <hvd/estimator/estimator_options.hpp>

namespace hvd {

struct FitRequest {
  std::string train_data{};
  std::optional<std::string> val_data{};
  StorageOptions storage_options{};
};

/// Puts what `json` says into `options`. Throws Errc::invalid_argument naming the key: unknown, of
/// another type than it should be, or missing (`train_data`; `store`, unless the program has one).
[[nodiscard]] FitRequest apply_request(const std::string& json, EstimatorOptions& options);

}  // namespace hvd
