#include "table/row_stream.hpp"

#include <algorithm>

#include <arrow/record_batch.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {

namespace {

constexpr std::int64_t kRowsAtATime = 1024;

std::vector<std::string> names_of(const Columns& columns) {
  std::vector<std::string> names = columns.features;
  names.insert(names.end(), columns.labels.begin(), columns.labels.end());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

RowStream::RowStream(ParquetSource source, Columns columns, Selection selection,
                     std::vector<GroupSlice> slices, arrow::MemoryPool* pool)
    : source_(std::move(source)),
      columns_(std::move(columns)),
      selection_(std::move(selection)),
      slices_(std::move(slices)),
      pool_(pool),
      names_(names_of(columns_)) {}

void RowStream::begin_slice() {
  const ParquetFiles& parquet = ParquetFiles::of(source_);
  const ParquetFiles::RowGroup& group = parquet.groups()[slices_[slice_].group];
  if (file_ != group.file) {
    reader_.reset();  // closes the previous file before the next one is opened
    reader_ = parquet.open(group.file, pool_);
    file_ = group.file;
  }
  reader_->begin(group.index, names_, kRowsAtATime);
  begun_ = true;
  row_ = 0;
  chosen_ = 0;
}

std::optional<Rows> RowStream::next() {
  while (slice_ < slices_.size()) {
    if (!begun_) begin_slice();
    const GroupSlice& slice = slices_[slice_];
    const ParquetFiles::RowGroup& group = ParquetFiles::of(source_).groups()[slice.group];
    const std::string& uri = source_.files()[group.file];
    const auto batch = reader_->next();
    if (batch == nullptr) {
      throw Error(Errc::protocol,
                  fmt::format("{} is damaged: row group {} ended after {} of {} rows", uri,
                              group.index, row_, group.rows));
    }
    std::vector<std::int64_t> wanted;
    for (std::int64_t i = 0; i < batch->num_rows(); ++i) {
      if (!selection_.contains(group.in_source + row_ + i)) continue;
      if (chosen_ >= slice.first && chosen_ < slice.first + slice.count) wanted.push_back(i);
      ++chosen_;
    }
    const std::int64_t first_row = group.in_file + row_;
    row_ += batch->num_rows();
    if (chosen_ >= slice.first + slice.count) {
      ++slice_;
      begun_ = false;
    }
    if (wanted.empty()) continue;
    return naming(uri, [&] {
      Rows rows = rows_of(*batch, first_row, wanted);
      require_same_shapes(rows, first_row + wanted.front());
      return rows;
    });
  }
  return std::nullopt;
}

Rows RowStream::rows_of(const arrow::RecordBatch& batch, std::int64_t first_row,
                        const std::vector<std::int64_t>& wanted) const {
  const std::int64_t first = wanted.front();
  const std::int64_t span = wanted.back() - first + 1;
  const auto part = batch.Slice(first, span);
  Rows rows;
  rows.features = to_tensors(*part, columns_, first_row + first);
  rows.labels = to_labels(*part, columns_, first_row + first);
  rows.count = static_cast<std::int64_t>(wanted.size());
  if (rows.count == span) return rows;
  const torch::Tensor index = torch::tensor(wanted, torch::kInt64) - first;
  for (auto* tensors : {&rows.features, &rows.labels}) {
    for (torch::Tensor& tensor : *tensors) tensor = tensor.index_select(0, index);
  }
  return rows;
}

void RowStream::require_same_shapes(const Rows& rows, std::int64_t first_row) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const auto* tensors : {&rows.features, &rows.labels}) {
    for (const torch::Tensor& tensor : *tensors) {
      shapes.push_back(tensor.sizes().slice(1).vec());
    }
  }
  if (shapes_.empty()) shapes_ = shapes;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i] == shapes_[i]) continue;
    const std::size_t inputs = rows.features.size();
    throw Error(Errc::invalid_argument,
                fmt::format("column '{}', row {}: {} values, and {} in the rows before",
                            i < inputs ? columns_.features[i] : columns_.labels[i - inputs],
                            first_row, c10::str(torch::IntArrayRef(shapes[i])),
                            c10::str(torch::IntArrayRef(shapes_[i]))));
  }
}

Rows RowStream::no_rows(const ParquetSource& source, const Columns& columns) {
  const auto& groups = ParquetFiles::of(source).groups();
  const auto some =
      std::find_if(groups.begin(), groups.end(), [](const auto& group) { return group.rows > 0; });
  if (some == groups.end()) return {};
  const auto group = static_cast<std::size_t>(some - groups.begin());
  RowStream stream(source, columns, Selection::all(source), {{group, 0, 1}});
  Rows rows = *stream.next();
  for (auto* tensors : {&rows.features, &rows.labels}) {
    for (torch::Tensor& tensor : *tensors) tensor = tensor.narrow(0, 0, 0).clone();
  }
  rows.count = 0;
  return rows;
}

}  // namespace hvd::detail
