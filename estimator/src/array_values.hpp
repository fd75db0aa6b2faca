// The values of an Arrow column as a tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <arrow/type_fwd.h>
#include <torch/types.h>

namespace hvd {

/// Where a value stands, for messages.
struct ValuePlace {
  std::string column;
  std::int64_t first_row = 0;
  std::int64_t values_per_row = 1;  ///< of the array at hand: inside of lists, their length

  [[nodiscard]] std::int64_t row(std::int64_t index) const {
    return first_row + (values_per_row == 0 ? 0 : index / values_per_row);
  }
};

/// [rows] of values, [rows, n] of lists, [rows, n, m] of lists of lists; always a copy. Throws
/// Errc::invalid_argument naming column and row.
[[nodiscard]] torch::Tensor tensor_of(const arrow::Array& array, torch::Dtype dtype,
                                      const ValuePlace& place);

/// What can be told by the type.
struct ValueType {
  bool taken = false;
  bool integer = false;                        ///< or bool, at the bottom of lists
  std::optional<std::int64_t> values_per_row;  ///< where the type says it
};
[[nodiscard]] ValueType value_type_of(const arrow::DataType& type);

}  // namespace hvd
