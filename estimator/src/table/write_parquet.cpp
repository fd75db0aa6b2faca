#include <algorithm>
#include <limits>

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/builder.h>
#include <arrow/io/memory.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <fmt/format.h>
#include <parquet/arrow/writer.h>

#include <hvd/core/error.hpp>
#include <hvd/estimator/parquet_source.hpp>

#include "store/arrow_status.hpp"
#include "store/file_system.hpp"
#include "table/parquet_writer.hpp"

namespace hvd {

using namespace detail;

namespace {

using ArrayPtr = std::shared_ptr<arrow::Array>;

[[noreturn]] void refuse_tensors(const std::string& why) {
  throw Error(Errc::invalid_argument, fmt::format("write_parquet: {}", why));
}

std::shared_ptr<arrow::DataType> type_of(torch::Dtype dtype) {
  switch (dtype) {
    case torch::kFloat16:
      return arrow::float16();
    case torch::kFloat32:
      return arrow::float32();
    case torch::kFloat64:
      return arrow::float64();
    case torch::kInt8:
      return arrow::int8();
    case torch::kUInt8:
      return arrow::uint8();
    case torch::kInt16:
      return arrow::int16();
    case torch::kInt32:
      return arrow::int32();
    case torch::kInt64:
      return arrow::int64();
    case torch::kBool:
      return arrow::boolean();
    default:
      refuse_tensors(fmt::format("tensors of {}", c10::toString(dtype)));
  }
}

/// Returns all elements as one array, which refers to the tensor's memory unless they are bool.
ArrayPtr flat_array(const torch::Tensor& tensor) {
  const std::int64_t count = tensor.numel();
  if (tensor.scalar_type() == torch::kBool) {
    arrow::BooleanBuilder bits;
    check(bits.AppendValues(static_cast<const std::uint8_t*>(tensor.const_data_ptr()), count),
          "write_parquet");
    return take(bits.Finish(), "write_parquet");
  }
  auto values =
      std::make_shared<arrow::Buffer>(static_cast<const std::uint8_t*>(tensor.const_data_ptr()),
                                      static_cast<std::int64_t>(tensor.nbytes()));
  return arrow::MakeArray(
      arrow::ArrayData::Make(type_of(tensor.scalar_type()), count, {nullptr, std::move(values)}));
}

ArrayPtr list_array(const ArrayPtr& values, std::int64_t rows, std::int64_t length, bool fixed) {
  // Arrow counts the elements of a list in 32 bits, and of all lists unless their length is fixed.
  const std::int64_t lists = fixed ? 1 : std::max<std::int64_t>(rows, 1);
  if (length > std::numeric_limits<std::int32_t>::max() / lists) {
    refuse_tensors(fmt::format("{} rows with lists of {} elements are too much for a row group{}",
                               rows, length, lists > 1 ? "; write fewer rows_per_group" : ""));
  }
  if (fixed) {
    return take(arrow::FixedSizeListArray::FromArrays(values, static_cast<std::int32_t>(length)),
                "write_parquet");
  }
  arrow::Int32Builder ends;
  for (std::int64_t row = 0; row <= rows; ++row) {
    check(ends.Append(static_cast<std::int32_t>(row * length)), "write_parquet");
  }
  const ArrayPtr offsets = take(ends.Finish(), "write_parquet");
  return take(arrow::ListArray::FromArrays(*offsets, *values), "write_parquet");
}

/// Returns the rows of a row group as a column. `tensor` is contiguous and must outlive it.
ArrayPtr written_column(const torch::Tensor& tensor, bool fixed) {
  const ArrayPtr values = flat_array(tensor);
  if (tensor.dim() == 1) return values;
  return list_array(values, tensor.size(0), c10::multiply_integers(tensor.sizes().slice(1)), fixed);
}

std::shared_ptr<arrow::Table> table_of(const std::vector<std::string>& names,
                                       const std::vector<torch::Tensor>& tensors, bool fixed) {
  arrow::FieldVector fields;
  arrow::ArrayVector columns;
  for (std::size_t i = 0; i < names.size(); ++i) {
    columns.push_back(written_column(tensors[i], fixed));
    fields.push_back(arrow::field(names[i], columns.back()->type()));
  }
  return arrow::Table::Make(arrow::schema(fields), columns, tensors.front().size(0));
}

std::vector<torch::Tensor> checked_tensors(const std::vector<std::string>& names,
                                           const std::vector<torch::Tensor>& tensors) {
  if (names.empty() || names.size() != tensors.size()) {
    refuse_tensors(fmt::format("{} names for {} tensors", names.size(), tensors.size()));
  }
  std::vector<torch::Tensor> ready;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].dim() == 0 || tensors[i].size(0) != tensors.front().size(0)) {
      refuse_tensors(fmt::format("'{}' has not the rows that '{}' has", names[i], names.front()));
    }
    ready.push_back(tensors[i].detach().cpu().contiguous());
  }
  return ready;
}

}  // namespace

void write_parquet(const std::string& uri, const std::vector<std::string>& names,
                   const std::vector<torch::Tensor>& tensors, const WriteParquetOptions& options) {
  const std::vector<torch::Tensor> all = checked_tensors(names, tensors);
  if (options.rows_per_group < 1)
    refuse_tensors(fmt::format("{} rows per group", options.rows_per_group));
  const std::int64_t rows = all.front().size(0);

  const auto sink = take(arrow::io::BufferOutputStream::Create(), uri);
  std::unique_ptr<parquet::arrow::FileWriter> writer;
  std::int64_t from = 0;
  do {  // a file without rows needs its columns too, so this runs at least once
    const std::int64_t count = std::min(options.rows_per_group, rows - from);
    std::vector<torch::Tensor> group;
    for (const torch::Tensor& tensor : all) group.push_back(tensor.narrow(0, from, count));
    const auto table = table_of(names, group, options.fixed_size_lists);
    if (writer == nullptr) {
      writer = open_writer(*table->schema(), sink, uri);
    }
    check(writer->WriteTable(*table, options.rows_per_group), uri);
    from += count;
  } while (from < rows);
  check(writer->Close(), uri);

  const auto bytes = take(sink->Finish(), uri);
  const SplitUri file = split_uri(uri);
  const auto store =
      EstimatorStore::open(file.folder, {.storage_options = options.storage_options});
  store.write(file.name,
              std::as_bytes(std::span(bytes->data(), static_cast<std::size_t>(bytes->size()))));
}

}  // namespace hvd
