// Describes the feature and label columns of a model and their shapes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

namespace arrow {
class RecordBatch;
class Schema;
}  // namespace arrow

namespace hvd {

/// A column holds one value per row (any integer, float16/32/64, bool or decimal), a list of them,
/// a list of lists, or Spark's dense vectors (`VectorUDT`). All lists of a column have the same
/// length. No value is null.
///
/// Features become the inputs of the model, as float32 unless `feature_types` says otherwise.
/// Labels that are integers or bool become int64; other labels become float32, so doubles lose
/// precision.
struct Columns {
  std::vector<std::string> features = {};
  std::vector<std::string> labels = {};
  /// The shapes of the inputs for one row. A leading -1, which Horovod writes for the rows, is
  /// ignored.
  /// - Empty: every feature column is an input with the shape that it is stored in.
  /// - One shape per feature column: every column is an input of shape [rows, shape...].
  /// - One shape for several feature columns: the values of the columns, side by side, are the only
  ///   input.
  std::vector<std::vector<std::int64_t>> input_shapes = {};
  /// The types of the inputs: none (float32), one for all inputs, or one for each input.
  std::vector<torch::Dtype> feature_types = {};
  /// The shapes of the labels for one row: none, when labels have the shapes that they are stored
  /// in, or one per label column. A leading -1 is ignored.
  std::vector<std::vector<std::int64_t>> label_shapes = {};

  /// Returns the number of inputs of the model.
  [[nodiscard]] std::size_t inputs() const noexcept;
};

/// Throws Errc::invalid_argument when there is no feature column, a name occurs twice, the number
/// of shapes or types is wrong, or a shape has a size below 1.
void validate(const Columns& columns);

/// Copies the feature columns into the inputs of the model, [rows, …] each. Columns are found by
/// name; other columns are ignored. Errors count rows from `first_row`. Throws
/// Errc::invalid_argument, naming the column, when it is missing, has a type that cannot be read or
/// values that do not fill the shape; and, naming the row too, for a null and for a list of another
/// length.
[[nodiscard]] std::vector<torch::Tensor> to_tensors(const arrow::RecordBatch& batch,
                                                    const Columns& columns,
                                                    std::int64_t first_row = 0);
/// Copies the label columns, [rows, shape...] each with `label_shapes`. Without them a column with
/// one value per row becomes [rows], and others [rows, n].
/// Throws what `to_tensors` throws.
[[nodiscard]] std::vector<torch::Tensor> to_labels(const arrow::RecordBatch& batch,
                                                   const Columns& columns,
                                                   std::int64_t first_row = 0);

/// Checks before any row is read that the schema has the feature columns and, on request, the label
/// columns, with types that can be read. Throws Errc::invalid_argument naming the column.
void require_columns(const arrow::Schema& schema, const Columns& columns, bool with_labels);

}  // namespace hvd
