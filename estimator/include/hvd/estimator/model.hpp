// A trained network with its columns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

#include <hvd/core/wire.hpp>
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

/// What is known of a model beside its numbers; it is saved with them.
struct ModelDescription {
  std::string run_id{};
  std::vector<std::string> feature_cols{};
  std::vector<std::string> label_cols{};
  std::vector<std::string> output_cols{};
  std::vector<std::vector<std::int64_t>> input_shapes{};
  std::vector<torch::Dtype> feature_types{};
  /// What one row gives, for each output: empty or {1} is a number, all else a list of them.
  std::vector<std::vector<std::int64_t>> output_shapes{};
  History history{};
};

/// How the fit went that gave a model.
struct FitSummary {
  double learning_rate = 0;  ///< effective, of the first parameter group
  int ranks = 0;
  int resumed_epochs = 0;   ///< that had been trained before
  std::string model_uri{};  ///< of `model.hvd`; empty when the run was not kept
};

/// Shares its module with copies of itself and with the estimator that trained it. `transform` puts
/// the module into evaluation mode, and is for one thread at a time.
class Model {
 public:
  Model(Trainable module, ModelDescription description, FitSummary summary = {});

  /// The outputs of these inputs, [rows, …] each: without gradients, in evaluation mode.
  [[nodiscard]] std::vector<torch::Tensor> transform(
      const std::vector<torch::Tensor>& inputs) const;
  /// The same rows with the output columns behind: float for one number per row, else a list of
  /// float. The batch needs the feature columns, and may have no rows; `first_row` is the number of
  /// its first one in what messages speak of. Throws Errc::invalid_argument: an output column that
  /// the batch has already, what `to_tensors` throws, other outputs than output columns.
  [[nodiscard]] std::shared_ptr<arrow::RecordBatch> transform(const arrow::RecordBatch& batch,
                                                              std::int64_t first_row = 0) const;
  /// The output columns alone.
  [[nodiscard]] std::shared_ptr<arrow::RecordBatch> outputs(const arrow::RecordBatch& batch,
                                                            std::int64_t first_row = 0) const;
  [[nodiscard]] std::shared_ptr<arrow::Schema> output_schema() const;
  /// Writes the source's rows with the output columns, one file `part-<n>.parquet` for each of its
  /// files, into the folder `uri`, and opens that. A file of what it writes is in memory at a time.
  /// Throws Errc::invalid_argument before anything is written when the source has an output column
  /// already or lacks a feature column, or the folder has Parquet files in it; and what
  /// `BatchReader::next` throws, by file, column and row.
  ParquetSource transform(const ParquetSource& source, const std::string& uri,
                          const StorageOptions& storage_options = {}) const;

  /// Throws Errc::invalid_argument: another number than there are outputs, a name twice or empty.
  void set_output_cols(std::vector<std::string> names);

  /// Numbers, names and description, not the program: a file of a store, or its bytes.
  void save(const std::string& uri, const StorageOptions& storage_options = {}) const;
  [[nodiscard]] Bytes to_bytes() const;
  /// Into `module`, whose parameters and buffers must have the names, shapes and types of those
  /// that were saved; nothing of it is changed otherwise. Throws Errc::invalid_argument (they
  /// differ: the first one that does; or there is no such file), Errc::protocol (damaged),
  /// Errc::resource.
  [[nodiscard]] static Model load(const std::string& uri, Trainable module,
                                  const StorageOptions& storage_options = {});
  [[nodiscard]] static Model from_bytes(std::span<const std::byte> bytes, Trainable module,
                                        const std::string& what = "the model");
  /// What a file says of itself, for programs that have no module yet.
  [[nodiscard]] static ModelDescription describe(std::span<const std::byte> bytes,
                                                 const std::string& what = "the model");

  [[nodiscard]] const Trainable& module() const noexcept { return module_; }
  [[nodiscard]] const ModelDescription& description() const noexcept { return description_; }
  [[nodiscard]] const History& history() const noexcept { return description_.history; }
  [[nodiscard]] const std::string& run_id() const noexcept { return description_.run_id; }
  [[nodiscard]] const FitSummary& summary() const noexcept { return summary_; }
  /// For each output column, as Spark writes it: "float" or "array<float>".
  [[nodiscard]] std::vector<std::string> output_types() const;

 private:
  [[nodiscard]] Columns columns() const;

  Trainable module_;
  ModelDescription description_;
  FitSummary summary_;
};

}  // namespace hvd
