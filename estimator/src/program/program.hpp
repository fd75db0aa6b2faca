// Declares two parts of `estimator_main`, which apply the request for a fit and score the stream of
// a transform.
#pragma once

#include <optional>
#include <string>

#include <hvd/estimator/estimator_options.hpp>
#include <hvd/estimator/model.hpp>

namespace hvd::detail {

/// The request of hvd_spark holds these values beside the parameters of the estimator.
struct FitRequest {
  std::string train_data{};
  std::optional<std::string> val_data{};
  StorageOptions storage_options{};
};

/// Sets the parameters that `json` names in `options`. Throws Errc::invalid_argument, naming the
/// key, for an unknown key, a value of the wrong type, and a key that is missing (`train_data`;
/// `store`, unless the program has one).
[[nodiscard]] FitRequest apply_request(const std::string& json, EstimatorOptions& options);

/// Reads an Arrow IPC stream from `input` and writes one to `output`. Each record batch is answered
/// by one with the output columns and as many rows before the next one is read, so that a peer that
/// writes and reads in turn does not deadlock. Neither descriptor is closed. Throws
/// Errc::invalid_argument (the columns do not fit), Errc::protocol (the stream is damaged or of
/// another format) and Errc::resource (the reader of `output` is gone).
void score_stream(const Model& model, int input, int output);

}  // namespace hvd::detail
