#include <algorithm>
#include <set>
#include <string_view>

#include <arrow/array.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/error.hpp>
#include <hvd/core/types.hpp>
#include <hvd/estimator/columns.hpp>

#include "table/array_values.hpp"

namespace hvd {

using namespace detail;

namespace {

template <class... Args>
[[noreturn]] void refuse_columns(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(Errc::invalid_argument, fmt::format(text, std::forward<Args>(args)...));
}

/// Returns the shape without the leading -1, which represents the rows.
Shape row_shape(Shape shape) {
  if (!shape.empty() && shape.front() == -1) shape.erase(shape.begin());
  return shape;
}

/// Returns whether several columns are one input.
bool has_joined_input(const Columns& columns) {
  return columns.input_shapes.size() == 1 && columns.features.size() > 1;
}

torch::Dtype dtype_of_input(const Columns& columns, std::size_t input) {
  if (columns.feature_types.empty()) return torch::kFloat32;
  return columns.feature_types[columns.feature_types.size() == 1 ? 0 : input];
}

std::string quoted(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("'{}'", fmt::join(names, "', '"));
}

std::shared_ptr<arrow::Array> column_of(const arrow::RecordBatch& batch, const std::string& name) {
  auto column = batch.GetColumnByName(name);
  if (column == nullptr) {
    refuse_columns("no column '{}' (there are: {})", name, quoted(batch.schema()->field_names()));
  }
  return column;
}

torch::Tensor reshaped(const torch::Tensor& values, std::int64_t rows, const Shape& shape,
                       const std::string& what) {
  Shape sizes = shape;
  sizes.insert(sizes.begin(), rows);
  if (rows == 0) return torch::empty(sizes, values.dtype());
  if (values.numel() / rows != c10::multiply_integers(shape)) {
    refuse_columns("{}: {} values per row do not fill the shape {}", what, values.numel() / rows,
                   c10::str(torch::IntArrayRef(shape)));
  }
  return values.reshape(sizes);
}

torch::Tensor joined_input(const arrow::RecordBatch& batch, const Columns& columns,
                           std::int64_t first_row) {
  const std::int64_t rows = batch.num_rows();
  std::vector<torch::Tensor> parts;
  for (const std::string& name : columns.features) {
    const torch::Tensor values =
        tensor_of(*column_of(batch, name), dtype_of_input(columns, 0), {name, first_row});
    parts.push_back(values.reshape({rows, rows == 0 ? 0 : values.numel() / rows}));
  }
  return reshaped(torch::cat(parts, 1), rows, row_shape(columns.input_shapes[0]),
                  fmt::format("columns {}", quoted(columns.features)));
}

ValueType checked_type(const arrow::Schema& schema, const std::string& name) {
  const auto fields = schema.GetAllFieldsByName(name);
  if (fields.empty())
    refuse_columns("no column '{}' (there are: {})", name, quoted(schema.field_names()));
  if (fields.size() > 1) refuse_columns("column '{}' is there {} times", name, fields.size());
  const arrow::DataType& type = *fields.front()->type();
  const ValueType values = value_type_of(type);
  if (!values.taken) {
    refuse_columns("column '{}' is {}: neither numbers nor lists of them", name, type.ToString());
  }
  return values;
}

void require_filled(std::optional<std::int64_t> values, const Shape& shape,
                    const std::string& what) {
  if (values && *values != c10::multiply_integers(shape)) {
    refuse_columns("{}: {} values per row do not fill the shape {}", what, *values,
                   c10::str(torch::IntArrayRef(shape)));
  }
}

void require_sizes(const std::vector<Shape>& shapes, std::string_view what) {
  for (const Shape& given : shapes) {
    const Shape shape = row_shape(given);
    if (std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size < 1; })) {
      refuse_columns("{} shape {}: sizes are above 0, but for a -1 at the beginning", what,
                     c10::str(torch::IntArrayRef(given)));
    }
  }
}

}  // namespace

std::size_t Columns::inputs() const noexcept {
  return has_joined_input(*this) ? 1 : features.size();
}

void validate(const Columns& columns) {
  if (columns.features.empty()) refuse_columns("no feature columns");
  for (const auto* names : {&columns.features, &columns.labels}) {
    std::set<std::string> seen;
    for (const std::string& name : *names) {
      if (!seen.insert(name).second) refuse_columns("column '{}' is named twice", name);
    }
  }
  const std::size_t shapes = columns.input_shapes.size();
  if (shapes > 1 && shapes != columns.features.size()) {
    refuse_columns(
        "{} input shapes for {} feature columns: none, one for all of them side by side, or one "
        "for each",
        shapes, columns.features.size());
  }
  const std::size_t label_shapes = columns.label_shapes.size();
  if (label_shapes > 0 && label_shapes != columns.labels.size()) {
    refuse_columns("{} label shapes for {} label columns: none, or one for each", label_shapes,
                   columns.labels.size());
  }
  require_sizes(columns.input_shapes, "input");
  require_sizes(columns.label_shapes, "label");
  const std::size_t types = columns.feature_types.size();
  if (types > 1 && types != columns.inputs()) {
    refuse_columns("{} feature types for {} inputs", types, columns.inputs());
  }
}

std::vector<torch::Tensor> to_tensors(const arrow::RecordBatch& batch, const Columns& columns,
                                      std::int64_t first_row) {
  if (has_joined_input(columns)) return {joined_input(batch, columns, first_row)};
  std::vector<torch::Tensor> inputs;
  for (std::size_t i = 0; i < columns.features.size(); ++i) {
    const std::string& name = columns.features[i];
    torch::Tensor values =
        tensor_of(*column_of(batch, name), dtype_of_input(columns, i), {name, first_row});
    if (!columns.input_shapes.empty()) {
      values = reshaped(values, batch.num_rows(), row_shape(columns.input_shapes[i]),
                        fmt::format("column '{}'", name));
    }
    inputs.push_back(std::move(values));
  }
  return inputs;
}

std::vector<torch::Tensor> to_labels(const arrow::RecordBatch& batch, const Columns& columns,
                                     std::int64_t first_row) {
  std::vector<torch::Tensor> labels;
  for (const std::string& name : columns.labels) {
    const auto column = column_of(batch, name);
    const bool integer = value_type_of(*column->type()).integer;
    torch::Tensor values =
        tensor_of(*column, integer ? torch::kInt64 : torch::kFloat32, {name, first_row});
    if (!columns.label_shapes.empty()) {
      values = reshaped(values, batch.num_rows(), row_shape(columns.label_shapes[labels.size()]),
                        fmt::format("column '{}'", name));
    }
    labels.push_back(std::move(values));
  }
  return labels;
}

void require_columns(const arrow::Schema& schema, const Columns& columns, bool with_labels) {
  validate(columns);
  std::optional<std::int64_t> side_by_side = 0;
  for (std::size_t i = 0; i < columns.features.size(); ++i) {
    const std::string& name = columns.features[i];
    const ValueType values = checked_type(schema, name);
    if (has_joined_input(columns)) {
      side_by_side = side_by_side && values.values_per_row
                         ? std::optional(*side_by_side + *values.values_per_row)
                         : std::nullopt;
    } else if (!columns.input_shapes.empty()) {
      require_filled(values.values_per_row, row_shape(columns.input_shapes[i]),
                     fmt::format("column '{}'", name));
    }
  }
  if (has_joined_input(columns)) {
    require_filled(side_by_side, row_shape(columns.input_shapes[0]),
                   fmt::format("columns {}", quoted(columns.features)));
  }
  if (!with_labels) return;
  for (std::size_t i = 0; i < columns.labels.size(); ++i) {
    const ValueType values = checked_type(schema, columns.labels[i]);
    if (columns.label_shapes.empty()) continue;
    require_filled(values.values_per_row, row_shape(columns.label_shapes[i]),
                   fmt::format("column '{}'", columns.labels[i]));
  }
}

}  // namespace hvd
