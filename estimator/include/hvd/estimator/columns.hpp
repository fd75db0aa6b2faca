// Which columns of a table a model takes and is trained to give, and the shapes they come in.
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

/// A column holds one value per row (any integer, float16/32/64, bool, decimal), or a list of them,
/// or a list of lists; or Spark's dense vectors (`VectorUDT`). The lists of a column are equally
/// long. None is null.
///
/// Features become the model's inputs, float32 unless `feature_types` says otherwise. Labels that
/// are integers or bool become int64, others float32 (doubles lose precision).
struct Columns {
  std::vector<std::string> features = {};
  std::vector<std::string> labels = {};
  /// Of one row; a leading -1, the rows, may be there and is ignored (Horovod writes it).
  ///   empty                   every feature column is an input as it is stored: [rows], [rows, n],
  ///   … one per feature column  every column is an input: [rows, shape...] one, several columns
  ///   the columns' values laid side by side are the only input
  std::vector<std::vector<std::int64_t>> input_shapes = {};
  /// Empty: float32 all of them; or one for all inputs; or one per input.
  std::vector<torch::Dtype> feature_types = {};

  /// Of the model.
  [[nodiscard]] std::size_t inputs() const noexcept;
};

/// Throws Errc::invalid_argument: no feature column, a name twice, a wrong number of shapes or
/// types, a shape with a size below 1.
void validate(const Columns& columns);

/// The model's inputs of all rows, by the names of the columns: others may be there too, in any
/// order. What LibTorch may keep: copies. `first_row` is the number that errors give the first row.
/// Throws Errc::invalid_argument naming the column: missing, of a type that is not taken, of values
/// that do not fill the shape; and with its row: a null, a list of another length than the others'.
[[nodiscard]] std::vector<torch::Tensor> to_tensors(const arrow::RecordBatch& batch,
                                                    const Columns& columns,
                                                    std::int64_t first_row = 0);
/// The same of the labels: [rows] of a column with one value per row, else [rows, n].
[[nodiscard]] std::vector<torch::Tensor> to_labels(const arrow::RecordBatch& batch,
                                                   const Columns& columns,
                                                   std::int64_t first_row = 0);

/// What can be said about the columns before a row was read. Throws as `to_tensors`.
void require_columns(const arrow::Schema& schema, const Columns& columns, bool with_labels);

}  // namespace hvd
