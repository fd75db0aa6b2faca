// Declares a trained network with its columns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

#include <hvd/core/types.hpp>
#include <hvd/estimator/columns.hpp>
#include <hvd/estimator/history.hpp>
#include <hvd/estimator/parquet_source.hpp>
#include <hvd/estimator/store.hpp>
#include <hvd/estimator/trainable.hpp>

namespace arrow {
class RecordBatch;
class Schema;
}  // namespace arrow

namespace hvd {

/// The description of a model, which is saved with its tensors.
struct ModelDescription {
  std::string run_id{};
  std::vector<std::string> feature_cols{};
  std::vector<std::string> label_cols{};
  std::vector<std::string> output_cols{};
  std::vector<std::vector<std::int64_t>> input_shapes{};
  std::vector<torch::Dtype> feature_types{};
  /// The shape of each output for one row. An empty shape and {1} mean a number, any other a list.
  std::vector<std::vector<std::int64_t>> output_shapes{};
  History history{};
};

/// The circumstances of a fit.
struct FitSummary {
  double learning_rate = 0;  ///< the effective rate of the first parameter group
  int ranks = 0;
  int resumed_epochs = 0;   ///< epochs that an earlier run had trained
  std::string model_uri{};  ///< the URI of `model.hvd`; empty when the run was not kept
};

/// A trained network. It shares its module with its copies and with the estimator that trained it.
/// `transform` puts the module into evaluation mode, and afterwards each module inside into the
/// mode that it had; one thread at a time may call it.
class Model {
 public:
  Model(Trainable module, ModelDescription description, FitSummary summary = {});

  /// Returns the outputs of these inputs, [rows, …] each, computed without gradients in evaluation
  /// mode.
  [[nodiscard]] std::vector<torch::Tensor> transform(
      const std::vector<torch::Tensor>& inputs) const;
  /// Returns the same rows with the output columns appended: a column of float for one number per
  /// row, otherwise a list of float. The batch must have the feature columns, and may have no rows.
  /// Errors count rows from `first_row`. Throws what `to_tensors` throws, and
  /// Errc::invalid_argument when the batch has an output column already or the model has another
  /// number of outputs.
  [[nodiscard]] std::shared_ptr<arrow::RecordBatch> transform(const arrow::RecordBatch& batch,
                                                              std::int64_t first_row = 0) const;
  /// Returns the output columns alone.
  [[nodiscard]] std::shared_ptr<arrow::RecordBatch> outputs(const arrow::RecordBatch& batch,
                                                            std::int64_t first_row = 0) const;
  [[nodiscard]] std::shared_ptr<arrow::Schema> output_schema() const;
  /// Writes the source's rows with the output columns into the folder `uri`, one file
  /// `part-<n>.parquet` for each of its files, and opens the result. It holds one written file in
  /// memory at a time. Throws Errc::invalid_argument before anything is written when a file of the
  /// source has an output column already or lacks a feature column, or when the folder contains
  /// Parquet files; and what `BatchReader::next` throws.
  ParquetSource transform(const ParquetSource& source, const std::string& uri,
                          const StorageOptions& storage_options = {}) const;

  /// Throws Errc::invalid_argument for another number of names than there are outputs, and for a
  /// name that is empty or occurs twice.
  void set_output_cols(std::vector<std::string> names);

  /// Saves the values and names of the tensors and the description, but not the code of the module.
  /// Throws what `EstimatorStore::open` and `EstimatorStore::write` throw.
  void save(const std::string& uri, const StorageOptions& storage_options = {}) const;
  [[nodiscard]] Bytes to_bytes() const;
  /// Loads the values into `module`, whose parameters and buffers must have the names, shapes and
  /// types of those that were saved. When it throws, the module is unchanged. Throws
  /// Errc::invalid_argument, naming the first tensor that differs, or when there is no such file;
  /// Errc::protocol when the file is damaged; and Errc::resource.
  [[nodiscard]] static Model load(const std::string& uri, Trainable module,
                                  const StorageOptions& storage_options = {});
  [[nodiscard]] static Model from_bytes(std::span<const std::byte> bytes, Trainable module,
                                        const std::string& what = "the model");
  /// Reads the description of a file without a module.
  [[nodiscard]] static ModelDescription describe(std::span<const std::byte> bytes,
                                                 const std::string& what = "the model");

  [[nodiscard]] const Trainable& module() const noexcept { return module_; }
  [[nodiscard]] const ModelDescription& description() const noexcept { return description_; }
  [[nodiscard]] const History& history() const noexcept { return description_.history; }
  [[nodiscard]] const std::string& run_id() const noexcept { return description_.run_id; }
  [[nodiscard]] const FitSummary& summary() const noexcept { return summary_; }
  /// Returns the type of each output column in Spark's notation: "float" or "array<float>".
  [[nodiscard]] std::vector<std::string> output_types() const;

 private:
  [[nodiscard]] Columns columns() const;

  Trainable module_;
  ModelDescription description_;
  FitSummary summary_;
};

}  // namespace hvd
