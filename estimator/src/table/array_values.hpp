// Copies the values of an Arrow column into a tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <arrow/type_fwd.h>
#include <torch/types.h>

namespace hvd::detail {

/// The column and row of a value, for messages.
struct ValuePosition {
  std::string column;
  std::int64_t first_row = 0;
  std::int64_t values_per_row = 1;  ///< the length of the lists, when the array lies inside lists

  [[nodiscard]] std::int64_t row(std::int64_t index) const {
    return first_row + (values_per_row == 0 ? 0 : index / values_per_row);
  }
};

/// Copies the values: to [rows] for a column of values, [rows, n] for lists, and [rows, n, m] for
/// lists of lists. Throws Errc::invalid_argument, naming column and row.
[[nodiscard]] torch::Tensor tensor_of(const arrow::Array& array, torch::Dtype dtype,
                                      const ValuePosition& position);

/// Describes the values of a column, as far as its type determines them.
struct ValueType {
  bool taken = false;                          ///< columns of this type can be read
  bool integer = false;                        ///< the innermost type is an integer or bool
  std::optional<std::int64_t> values_per_row;  ///< known when the lists have a fixed size
};
[[nodiscard]] ValueType value_type_of(const arrow::DataType& type);

}  // namespace hvd::detail
