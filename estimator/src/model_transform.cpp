// A model on Arrow's tables.
#include <algorithm>
#include <limits>

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/estimator/model.hpp>

#include "arrow_status.hpp"

namespace hvd {

namespace {

constexpr std::int64_t kRowsAtOnce = 1024;

bool is_number(const std::vector<std::int64_t>& shape) {
  return shape.empty() || shape == std::vector<std::int64_t>{1};
}

std::shared_ptr<arrow::DataType> column_type(const std::vector<std::int64_t>& shape) {
  // Lists are what Spark calls them, and how it names what is in them.
  return is_number(shape) ? arrow::float32()
                          : arrow::list(arrow::field("element", arrow::float32()));
}

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

/// Keeps the tensor as long as Arrow has its memory.
class TensorBuffer final : public arrow::Buffer {
 public:
  explicit TensorBuffer(torch::Tensor tensor)
      : arrow::Buffer(static_cast<const std::uint8_t*>(tensor.const_data_ptr()),
                      static_cast<std::int64_t>(tensor.nbytes())),
        tensor_(std::move(tensor)) {}

 private:
  torch::Tensor tensor_;
};

std::shared_ptr<arrow::Array> column_of(const torch::Tensor& output, std::int64_t rows,
                                        const std::vector<std::int64_t>& shape,
                                        const std::string& name) {
  const std::int64_t each = elements_of(shape);
  if (output.dim() == 0 || output.size(0) != rows || output.numel() != rows * each) {
    throw Error(Errc::invalid_argument,
                fmt::format("model: output '{}' has shape {} for {} rows; {} values per row are "
                            "expected",
                            name, c10::str(output.sizes()), rows, each));
  }
  const auto values = std::make_shared<arrow::FloatArray>(
      rows * each,
      std::make_shared<TensorBuffer>(output.to(torch::kCPU, torch::kFloat32).contiguous()));
  if (is_number(shape)) return values;
  if (rows * each > std::numeric_limits<std::int32_t>::max()) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("model: output '{}' of {} rows is more than a list column holds", name, rows));
  }
  const torch::Tensor offsets =
      torch::arange(0, rows * each + 1, std::max<std::int64_t>(each, 1), torch::kInt32);
  return std::make_shared<arrow::ListArray>(column_type(shape), rows,
                                            std::make_shared<TensorBuffer>(offsets), values);
}

}  // namespace

std::shared_ptr<arrow::Schema> Model::output_schema() const {
  arrow::FieldVector fields;
  for (std::size_t i = 0; i < description_.output_cols.size(); ++i) {
    fields.push_back(
        arrow::field(description_.output_cols[i], column_type(description_.output_shapes.at(i))));
  }
  return arrow::schema(fields);
}

std::shared_ptr<arrow::RecordBatch> Model::outputs(const arrow::RecordBatch& batch,
                                                   std::int64_t first_row) const {
  const std::int64_t rows = batch.num_rows();
  const auto schema = output_schema();
  require_columns(*batch.schema(), columns(), /*with_labels=*/false);
  arrow::ArrayVector arrays;
  if (rows == 0) {
    for (const auto& shape : description_.output_shapes) {
      const torch::Tensor none = torch::empty({0, elements_of(shape)});
      arrays.push_back(column_of(none, 0, shape, ""));
    }
    return arrow::RecordBatch::Make(schema, 0, std::move(arrays));
  }
  // A model's own memory is many times that of its inputs: a large batch goes through in pieces.
  std::vector<std::vector<torch::Tensor>> pieces;
  for (std::int64_t from = 0; from < rows; from += kRowsAtOnce) {
    const auto part = batch.Slice(from, std::min(kRowsAtOnce, rows - from));
    std::vector<torch::Tensor> given = transform(to_tensors(*part, columns(), first_row + from));
    pieces.resize(given.size());
    for (std::size_t i = 0; i < given.size(); ++i) pieces[i].push_back(std::move(given[i]));
  }
  std::vector<torch::Tensor> given;
  for (const auto& piece : pieces)
    given.push_back(piece.size() == 1 ? piece[0] : torch::cat(piece));
  if (given.size() != description_.output_cols.size()) {
    throw Error(Errc::invalid_argument,
                fmt::format("model: it gives {} outputs, and there are {} output columns",
                            given.size(), description_.output_cols.size()));
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    arrays.push_back(
        column_of(given[i], rows, description_.output_shapes[i], description_.output_cols[i]));
  }
  return arrow::RecordBatch::Make(schema, rows, std::move(arrays));
}

std::shared_ptr<arrow::RecordBatch> Model::transform(const arrow::RecordBatch& batch,
                                                     std::int64_t first_row) const {
  for (const std::string& name : description_.output_cols) {
    if (batch.schema()->GetFieldIndex(name) >= 0) {
      throw Error(Errc::invalid_argument,
                  fmt::format("output_cols: the data has a column '{}' already", name));
    }
  }
  const auto added = outputs(batch, first_row);
  arrow::FieldVector fields = batch.schema()->fields();
  arrow::ArrayVector arrays = batch.columns();
  for (int i = 0; i < added->num_columns(); ++i) {
    fields.push_back(added->schema()->field(i));
    arrays.push_back(added->column(i));
  }
  return arrow::RecordBatch::Make(arrow::schema(fields, batch.schema()->metadata()),
                                  batch.num_rows(), std::move(arrays));
}

}  // namespace hvd
