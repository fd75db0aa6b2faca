// Implements the functions that apply a model to Arrow's record batches and Parquet files.
#include <algorithm>
#include <limits>
#include <span>

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <fmt/format.h>
#include <parquet/arrow/writer.h>

#include <hvd/core/error.hpp>
#include <hvd/estimator/model.hpp>

#include "store/arrow_status.hpp"
#include "table/parquet_files.hpp"
#include "table/parquet_writer.hpp"

namespace hvd {

using namespace detail;

namespace {

constexpr std::int64_t kRowsOfForward = 1024;  // the most rows of a forward pass
constexpr std::int64_t kRowsOfRead = 4096;     // the most rows that are read from a file at once

bool is_number(const std::vector<std::int64_t>& shape) {
  return shape.empty() || shape == std::vector<std::int64_t>{1};
}

std::shared_ptr<arrow::DataType> column_type(const std::vector<std::int64_t>& shape) {
  // Spark names the elements of a list "element"; readers in Spark expect that.
  return is_number(shape) ? arrow::float32()
                          : arrow::list(arrow::field("element", arrow::float32()));
}

/// Keeps the tensor alive for as long as Arrow uses its memory.
class TensorBuffer final : public arrow::Buffer {
 public:
  explicit TensorBuffer(torch::Tensor tensor)
      : arrow::Buffer(static_cast<const std::uint8_t*>(tensor.const_data_ptr()),
                      static_cast<std::int64_t>(tensor.nbytes())),
        tensor_(std::move(tensor)) {}

 private:
  torch::Tensor tensor_;
};

std::shared_ptr<arrow::Array> output_column(const torch::Tensor& output, std::int64_t rows,
                                            const std::vector<std::int64_t>& shape,
                                            const std::string& name) {
  const std::int64_t each = c10::multiply_integers(shape);
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
  const torch::Tensor offsets = torch::arange(rows + 1, torch::kInt32).mul(each);
  return std::make_shared<arrow::ListArray>(column_type(shape), rows,
                                            std::make_shared<TensorBuffer>(offsets), values);
}

/// Throws when the data has one of these columns, once or more often.
void require_no_columns(const arrow::Schema& schema, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (schema.GetAllFieldIndices(name).empty()) continue;
    throw Error(Errc::invalid_argument,
                fmt::format("output_cols: the data has a column '{}' already", name));
  }
}

/// Throws when the folder or a subfolder has Parquet files already, which a reader would take for
/// files of the result.
void require_no_files(const Location& folder) {
  const std::vector<std::string> names = parquet_files_below(folder);
  if (names.empty()) return;
  throw Error(Errc::invalid_argument,
              fmt::format("{} has Parquet files already: {}", folder.uri, names.front()));
}

/// Returns one file of the source, with the output columns added, as Parquet.
std::shared_ptr<arrow::Buffer> transform_file(const Model& model, const ParquetFiles& files,
                                              std::size_t number) {
  const std::string& what = files.uris()[number];
  const auto reader = files.open(number);
  const auto schema = reader->schema();
  arrow::FieldVector fields = schema->fields();
  const auto added = model.output_schema();
  fields.insert(fields.end(), added->fields().begin(), added->fields().end());
  // The source's metadata is left out: it may list the columns without those that are added.
  const auto whole = arrow::schema(fields);

  const auto sink = take(arrow::io::BufferOutputStream::Create(), what);
  const auto writer = open_writer(*whole, sink, what);
  const auto groups = static_cast<int>(files.files()[number].row_groups.size());
  std::int64_t row = 0;
  for (int group = 0; group < groups; ++group) {
    check(writer->NewBufferedRowGroup(), what);
    reader->begin(group, schema->field_names(), kRowsOfRead);
    while (const auto batch = reader->next()) {
      const auto scored = naming(what, [&] { return model.transform(*batch, row); });
      row += batch->num_rows();
      check(writer->WriteRecordBatch(*scored->ReplaceSchema(whole).ValueOr(scored)), what);
    }
  }
  check(writer->Close(), what);
  return take(sink->Finish(), what);
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

std::vector<std::string> Model::output_types() const {
  std::vector<std::string> types;
  for (const auto& shape : description_.output_shapes) {
    types.emplace_back(is_number(shape) ? "float" : "array<float>");
  }
  return types;
}

std::shared_ptr<arrow::RecordBatch> Model::outputs(const arrow::RecordBatch& batch,
                                                   std::int64_t first_row) const {
  const std::int64_t rows = batch.num_rows();
  const auto schema = output_schema();
  require_columns(*batch.schema(), columns(), /*with_labels=*/false);
  arrow::ArrayVector arrays;
  if (rows == 0) {
    for (const auto& shape : description_.output_shapes) {
      const torch::Tensor none = torch::empty({0, c10::multiply_integers(shape)});
      arrays.push_back(output_column(none, 0, shape, ""));
    }
    return arrow::RecordBatch::Make(schema, 0, std::move(arrays));
  }
  // A forward pass needs many times the memory of its inputs, so a large batch is scored in pieces.
  std::vector<std::vector<torch::Tensor>> pieces;
  for (std::int64_t from = 0; from < rows; from += kRowsOfForward) {
    const auto part = batch.Slice(from, std::min(kRowsOfForward, rows - from));
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
        output_column(given[i], rows, description_.output_shapes[i], description_.output_cols[i]));
  }
  return arrow::RecordBatch::Make(schema, rows, std::move(arrays));
}

std::shared_ptr<arrow::RecordBatch> Model::transform(const arrow::RecordBatch& batch,
                                                     std::int64_t first_row) const {
  require_no_columns(*batch.schema(), description_.output_cols);
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

ParquetSource Model::transform(const ParquetSource& source, const std::string& uri,
                               const StorageOptions& storage_options) const {
  Columns features = columns();
  features.labels.clear();
  source.require(features);
  const ParquetFiles& files = ParquetFiles::of(source);
  for (std::size_t number = 0; number < files.files().size(); ++number) {
    naming(files.uris()[number],
           [&] { require_no_columns(*files.files()[number].schema, description_.output_cols); });
  }
  const EstimatorStore store = EstimatorStore::open(uri, {.storage_options = storage_options});
  require_no_files(locate(uri, storage_options));
  for (std::size_t number = 0; number < files.files().size(); ++number) {
    const auto bytes = transform_file(*this, files, number);
    store.write(fmt::format("part-{:05}.parquet", number),
                std::as_bytes(std::span(bytes->data(), static_cast<std::size_t>(bytes->size()))));
  }
  return ParquetSource::open(uri, storage_options);
}

}  // namespace hvd
