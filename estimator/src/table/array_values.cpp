#include "table/array_values.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/type.h>
#include <arrow/util/decimal.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {

namespace {

[[noreturn]] void refuse_value(const ValuePosition& position, std::int64_t index,
                               const std::string& why) {
  throw Error(Errc::invalid_argument,
              fmt::format("column '{}', row {}: {}", position.column, position.row(index), why));
}

void refuse_nulls(const arrow::Array& array, const ValuePosition& position) {
  if (array.null_count() == 0) return;
  for (std::int64_t i = 0; i < array.length(); ++i) {
    if (array.IsNull(i)) refuse_value(position, i, "null");
  }
}

/// Copies values that have the same layout in Arrow and in LibTorch.
template <class Array>
torch::Tensor same_layout(const arrow::Array& array, torch::Dtype stored, torch::Dtype wanted) {
  const auto& values = static_cast<const Array&>(array);
  auto* const data =
      const_cast<void*>(static_cast<const void*>(values.raw_values()));  // NOLINT: only read
  return torch::from_blob(data, {array.length()}, stored).to(wanted, false, /*copy=*/true);
}

/// Copies values one by one.
template <class Stored, class Value>
torch::Tensor each(std::int64_t count, torch::Dtype stored, torch::Dtype wanted,
                   const Value& value) {
  torch::Tensor tensor = torch::empty({count}, stored);
  auto* const to = tensor.mutable_data_ptr<Stored>();
  for (std::int64_t i = 0; i < count; ++i) to[i] = value(i);
  return tensor.to(wanted);
}

template <class Array>
torch::Tensor unsigned_values(const arrow::Array& array, torch::Dtype wanted,
                              const ValuePosition& position) {
  const auto& values = static_cast<const Array&>(array);
  return each<std::int64_t>(array.length(), torch::kInt64, wanted, [&](std::int64_t i) {
    const std::uint64_t value = values.Value(i);
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse_value(position, i, fmt::format("{} is above the largest int64", value));
    }
    return static_cast<std::int64_t>(value);
  });
}

template <class Array, class Decimal>
torch::Tensor decimals(const arrow::Array& array, torch::Dtype wanted) {
  const auto& values = static_cast<const Array&>(array);
  const int scale = static_cast<const arrow::DecimalType&>(*array.type()).scale();
  return each<double>(array.length(), torch::kFloat64, wanted,
                      [&](std::int64_t i) { return Decimal(values.GetValue(i)).ToDouble(scale); });
}

torch::Tensor lists(const arrow::Array& inner, std::int64_t rows, std::int64_t length,
                    torch::Dtype dtype, ValuePosition position) {
  position.values_per_row *= length;
  const torch::Tensor values = tensor_of(inner, dtype, position);
  std::vector<std::int64_t> sizes = values.sizes().vec();
  sizes.front() = length;
  sizes.insert(sizes.begin(), rows);
  return values.reshape(sizes);
}

template <class Array>
torch::Tensor of_lists(const arrow::Array& array, torch::Dtype dtype,
                       const ValuePosition& position) {
  const auto& list = static_cast<const Array&>(array);
  const std::int64_t rows = list.length();
  const std::int64_t length = rows == 0 ? 0 : list.value_length(0);
  for (std::int64_t i = 1; i < rows; ++i) {
    if (list.value_length(i) != length) {
      refuse_value(position, i,
                   fmt::format("{} values, and {} in row {}", list.value_length(i), length,
                               position.row(0)));
    }
  }
  const std::int64_t first = rows == 0 ? 0 : list.value_offset(0);
  return lists(*list.values()->Slice(first, rows * length), rows, length, dtype, position);
}

// These are the fields of Spark's VectorUDT in Parquet and Arrow. In a dense vector the value of
// `type` is 1 (org.apache.spark.ml.linalg.VectorUDT).
constexpr std::array<std::string_view, 4> kVectorFields = {"type", "size", "indices", "values"};
constexpr std::int8_t kDense = 1;

bool is_vector(const arrow::DataType& type) {
  if (type.id() != arrow::Type::STRUCT || type.num_fields() != int{kVectorFields.size()}) {
    return false;
  }
  for (std::size_t i = 0; i < kVectorFields.size(); ++i) {
    if (type.field(static_cast<int>(i))->name() != kVectorFields[i]) return false;
  }
  return type.field(0)->type()->id() == arrow::Type::INT8 &&
         type.field(3)->type()->id() == arrow::Type::LIST;
}

torch::Tensor of_vectors(const arrow::Array& array, torch::Dtype dtype,
                         const ValuePosition& position) {
  const auto& vectors = static_cast<const arrow::StructArray&>(array);
  const auto kind_array = vectors.field(0);
  const auto& kinds = static_cast<const arrow::Int8Array&>(*kind_array);
  for (std::int64_t i = 0; i < kinds.length(); ++i) {
    if (kinds.IsNull(i) || kinds.Value(i) != kDense) {
      refuse_value(position, i,
                   "a sparse vector, and only dense ones are taken (pyspark's vector_to_array)");
    }
  }
  return tensor_of(*vectors.field(3), dtype, position);
}

}  // namespace

torch::Tensor tensor_of(const arrow::Array& array, torch::Dtype dtype,
                        const ValuePosition& position) {
  refuse_nulls(array, position);
  switch (array.type_id()) {
    case arrow::Type::INT8:
      return same_layout<arrow::Int8Array>(array, torch::kInt8, dtype);
    case arrow::Type::INT16:
      return same_layout<arrow::Int16Array>(array, torch::kInt16, dtype);
    case arrow::Type::INT32:
      return same_layout<arrow::Int32Array>(array, torch::kInt32, dtype);
    case arrow::Type::INT64:
      return same_layout<arrow::Int64Array>(array, torch::kInt64, dtype);
    case arrow::Type::UINT8:
      return same_layout<arrow::UInt8Array>(array, torch::kUInt8, dtype);
    case arrow::Type::UINT16:
      return unsigned_values<arrow::UInt16Array>(array, dtype, position);
    case arrow::Type::UINT32:
      return unsigned_values<arrow::UInt32Array>(array, dtype, position);
    case arrow::Type::UINT64:
      return unsigned_values<arrow::UInt64Array>(array, dtype, position);
    case arrow::Type::HALF_FLOAT:
      return same_layout<arrow::HalfFloatArray>(array, torch::kFloat16, dtype);
    case arrow::Type::FLOAT:
      return same_layout<arrow::FloatArray>(array, torch::kFloat32, dtype);
    case arrow::Type::DOUBLE:
      return same_layout<arrow::DoubleArray>(array, torch::kFloat64, dtype);
    case arrow::Type::BOOL: {
      const auto& bits = static_cast<const arrow::BooleanArray&>(array);
      return each<bool>(array.length(), torch::kBool, dtype,
                        [&](std::int64_t i) { return bits.Value(i); });
    }
    case arrow::Type::DECIMAL128:
      return decimals<arrow::Decimal128Array, arrow::Decimal128>(array, dtype);
    case arrow::Type::DECIMAL256:
      return decimals<arrow::Decimal256Array, arrow::Decimal256>(array, dtype);
    case arrow::Type::LIST:
      return of_lists<arrow::ListArray>(array, dtype, position);
    case arrow::Type::LARGE_LIST:
      return of_lists<arrow::LargeListArray>(array, dtype, position);
    case arrow::Type::FIXED_SIZE_LIST: {
      const auto& list = static_cast<const arrow::FixedSizeListArray&>(array);
      const std::int64_t length = list.value_length(0);
      return lists(*list.values()->Slice(list.value_offset(0), list.length() * length),
                   list.length(), length, dtype, position);
    }
    case arrow::Type::EXTENSION:
      return tensor_of(*static_cast<const arrow::ExtensionArray&>(array).storage(), dtype,
                       position);
    default:
      if (is_vector(*array.type())) return of_vectors(array, dtype, position);
      throw Error(Errc::invalid_argument,
                  fmt::format("column '{}' is {}: neither numbers nor lists of them",
                              position.column, array.type()->ToString()));
  }
}

ValueType value_type_of(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST: {
      ValueType inner = value_type_of(*type.field(0)->type());
      if (type.id() != arrow::Type::FIXED_SIZE_LIST) {
        inner.values_per_row.reset();
      } else if (inner.values_per_row) {
        *inner.values_per_row *= static_cast<const arrow::FixedSizeListType&>(type).list_size();
      }
      return inner;
    }
    case arrow::Type::EXTENSION:
      return value_type_of(*static_cast<const arrow::ExtensionType&>(type).storage_type());
    case arrow::Type::HALF_FLOAT:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256:
      return {true, false, 1};
    default:
      if (arrow::is_integer(type.id()) || type.id() == arrow::Type::BOOL) return {true, true, 1};
      return {is_vector(type), false, std::nullopt};
  }
}

}  // namespace hvd::detail
