#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/estimator/parquet_source.hpp>

#include "parquet_files.hpp"

namespace hvd {

ParquetSource ParquetSource::open(const std::string& uri, const StorageOptions& storage_options) {
  return ParquetSource(std::make_shared<const ParquetFiles>(uri, storage_options));
}

const std::string& ParquetSource::uri() const noexcept { return parquet_->uri(); }
std::int64_t ParquetSource::rows() const noexcept { return parquet_->rows(); }
const std::vector<std::string>& ParquetSource::files() const noexcept { return parquet_->uris(); }

std::vector<std::int64_t> ParquetSource::row_groups() const {
  std::vector<std::int64_t> rows;
  for (const auto& group : parquet_->groups()) rows.push_back(group.rows);
  return rows;
}

std::vector<ParquetSource::Column> ParquetSource::schema() const {
  std::vector<Column> columns;
  for (const auto& field : parquet_->files().front().schema->fields()) {
    columns.push_back({field->name(), field->type()->ToString()});
  }
  return columns;
}

void ParquetSource::require(const Columns& columns) const {
  validate(columns);
  const auto& files = parquet_->files();
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (i > 0 && files[i].schema == files.front().schema) continue;
    naming(parquet_->uris()[i],
           [&] { require_columns(*files[i].schema, columns, /*with_labels=*/true); });
  }
}

}  // namespace hvd
