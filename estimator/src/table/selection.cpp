#include <functional>

#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <arrow/type_traits.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/estimator/parquet_source.hpp>

#include "table/array_values.hpp"
#include "table/parquet_files.hpp"
#include "table/share_plan.hpp"

namespace hvd {

using namespace detail;

namespace {

using Marks = std::vector<bool>;
constexpr std::int64_t kRowsOfOneRead = 16384;

[[noreturn]] void refuse_selection(const std::string& why) {
  throw Error(Errc::invalid_argument, fmt::format("validation: {}", why));
}

/// Returns a number in [0, 1) that depends on seed and row, with the 53 bits that a double holds.
double drawn(std::uint64_t seed, std::int64_t row) {
  return static_cast<double>(mixed(seed, static_cast<std::uint64_t>(row)) >> 11) * 0x1p-53;
}

void mark_group(ParquetReader& reader, const ParquetFiles::RowGroup& group,
                const std::string& column, Marks& marks) {
  reader.begin(group.index, {column}, kRowsOfOneRead);
  std::int64_t row = 0;
  while (const auto batch = reader.next()) {
    const torch::Tensor values =
        tensor_of(*batch->column(0), torch::kFloat64, {column, group.in_file + row});
    const auto* const value = values.const_data_ptr<double>();
    for (std::int64_t i = 0; i < batch->num_rows(); ++i, ++row) {
      marks[static_cast<std::size_t>(group.in_source + row)] = value[i] > 0;
    }
  }
}

void require_flag(const arrow::Schema& schema, const std::string& column) {
  const auto field = schema.GetFieldByName(column);
  if (field == nullptr) refuse_selection(fmt::format("no column '{}', or several", column));
  if (!value_type_of(*field->type()).taken || arrow::is_nested(field->type()->id())) {
    refuse_selection(fmt::format("column '{}' is {}, neither bool nor a number", column,
                                 field->type()->ToString()));
  }
}

Marks marked_by(const ParquetFiles& parquet, const std::string& column) {
  Marks marks(static_cast<std::size_t>(parquet.rows()));
  std::size_t group = 0;
  for (std::size_t file = 0; file < parquet.files().size(); ++file) {
    naming(parquet.uris()[file], [&] { require_flag(*parquet.files()[file].schema, column); });
  }
  for (std::size_t file = 0; file < parquet.files().size(); ++file) {
    if (parquet.files()[file].row_groups.empty()) continue;
    const auto reader = parquet.open(file);
    for (; group < parquet.groups().size() && parquet.groups()[group].file == file; ++group) {
      naming(parquet.uris()[file],
             [&] { mark_group(*reader, parquet.groups()[group], column, marks); });
    }
  }
  return marks;
}

}  // namespace

struct Selection::State {
  std::function<bool(std::int64_t)> chosen;  ///< empty: all rows are selected
  std::vector<std::int64_t> of_groups;
  std::int64_t rows = 0;
};

Selection Selection::all(const ParquetSource& source) {
  auto state = std::make_shared<State>();
  state->of_groups = source.row_groups();
  state->rows = source.rows();
  return Selection(std::move(state));
}

std::int64_t Selection::rows() const noexcept { return state_->rows; }
std::int64_t Selection::rows_of_group(std::size_t group) const {
  return state_->of_groups.at(group);
}
bool Selection::contains(std::int64_t row) const {
  return state_->chosen == nullptr || state_->chosen(row);
}

std::pair<Selection, Selection> split(const ParquetSource& source, const Validation& validation,
                                      std::uint64_t seed) {
  if (!(validation.fraction >= 0 && validation.fraction < 1)) {
    refuse_selection(
        fmt::format("a fraction of {}, it is 0 or more and below 1", validation.fraction));
  }
  if (validation.fraction > 0 && !validation.column.empty()) {
    refuse_selection("a fraction and a column: one of them");
  }
  auto training = std::make_shared<Selection::State>();
  auto held_out = std::make_shared<Selection::State>();
  if (!validation.column.empty()) {
    const auto marks =
        std::make_shared<const Marks>(marked_by(ParquetFiles::of(source), validation.column));
    held_out->chosen = [marks](std::int64_t row) {
      return bool{(*marks)[static_cast<std::size_t>(row)]};
    };
  } else {
    held_out->chosen = [seed, fraction = validation.fraction](std::int64_t row) {
      return drawn(seed, row) < fraction;
    };
  }
  training->chosen = [chosen = held_out->chosen](std::int64_t row) { return !chosen(row); };
  for (const auto& group : ParquetFiles::of(source).groups()) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < group.rows; ++i) {
      count += held_out->chosen(group.in_source + i) ? 1 : 0;
    }
    held_out->of_groups.push_back(count);
    held_out->rows += count;
    training->of_groups.push_back(group.rows - count);
    training->rows += group.rows - count;
  }
  return {Selection(std::move(training)), Selection(std::move(held_out))};
}

}  // namespace hvd
