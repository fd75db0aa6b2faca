#include "table/parquet_files.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

#include "store/arrow_status.hpp"
#include "table/array_values.hpp"

namespace hvd::detail {

namespace {

/// Returns whether Spark would skip the file, as it skips `_SUCCESS`, `_temporary/…` and
/// `.part-….crc`.
bool is_hidden(std::string_view below) {
  while (true) {
    if (!below.empty() && (below.front() == '_' || below.front() == '.')) return true;
    const std::size_t slash = below.find('/');
    if (slash == std::string_view::npos) return false;
    below.remove_prefix(slash + 1);
  }
}

/// Returns the sorted paths of the files, relative to the location. If the location is a file, it
/// returns one empty path.
std::vector<std::string> parquet_files_in(const Location& location) {
  const auto info = take(location.file_system->GetFileInfo(location.path), location.uri);
  if (info.type() == arrow::fs::FileType::NotFound) {
    throw Error(Errc::resource, fmt::format("{}: no such file or folder", location.uri));
  }
  if (info.IsFile()) return {""};
  std::vector<std::string> names = parquet_files_below(location);
  if (names.empty()) {
    throw Error(Errc::invalid_argument, fmt::format("{}: no *.parquet in it", location.uri));
  }
  return names;
}

/// Throws when the file stores a label as integers and the first file does not, or the reverse. A
/// batch may hold rows of both, in one tensor.
void require_same_kind(const arrow::Schema& schema, const arrow::Schema& first,
                       const std::string& first_uri, const std::vector<std::string>& labels) {
  for (const std::string& label : labels) {
    const arrow::DataType& type = *schema.GetFieldByName(label)->type();
    const arrow::DataType& of_first = *first.GetFieldByName(label)->type();
    if (value_type_of(type).integer == value_type_of(of_first).integer) continue;
    throw Error(Errc::invalid_argument,
                fmt::format("label column '{}' is {}, and {} in {}; labels are integers in all "
                            "files or in none",
                            label, type.ToString(), of_first.ToString(), first_uri));
  }
}

}  // namespace

std::vector<std::string> parquet_files_below(const Location& folder) {
  arrow::fs::FileSelector selector;
  selector.base_dir = folder.path;
  selector.recursive = true;
  selector.allow_not_found = true;
  std::vector<std::string> names;
  for (const auto& found : take(folder.file_system->GetFileInfo(selector), folder.uri)) {
    const std::string below =
        found.path().substr(std::min(found.path().size(), folder.path_of("x").size() - 1));
    if (found.IsFile() && below.ends_with(".parquet") && !is_hidden(below)) names.push_back(below);
  }
  std::sort(names.begin(), names.end());
  return names;
}

ParquetFiles::ParquetFiles(const std::string& uri, const StorageOptions& options)
    : location_(locate(uri, options)) {
  for (const std::string& name : parquet_files_in(location_)) {
    uris_.push_back(location_.uri_of(name));
    File file{.path = location_.path_of(name), .schema = nullptr, .row_groups = {}};
    const ParquetReader reader(*location_.file_system, file.path, uris_.back());
    file.schema = reader.schema();
    if (!files_.empty() && files_.front().schema->Equals(*file.schema)) {
      file.schema = files_.front().schema;  // equal schemas share one object
    }
    file.row_groups = reader.row_groups();
    std::int64_t in_file = 0;
    for (std::size_t index = 0; index < file.row_groups.size(); ++index) {
      const std::int64_t rows = file.row_groups[index];
      groups_.push_back({files_.size(), static_cast<int>(index), in_file, rows_, rows});
      in_file += rows;
      rows_ += rows;
    }
    files_.push_back(std::move(file));
  }
}

std::unique_ptr<ParquetReader> ParquetFiles::open(std::size_t file, arrow::MemoryPool* pool) const {
  auto reader =
      std::make_unique<ParquetReader>(*location_.file_system, files_[file].path, uris_[file], pool);
  if (reader->row_groups() != files_[file].row_groups ||
      !reader->schema()->Equals(*files_[file].schema)) {
    throw Error(Errc::protocol,
                fmt::format("{} was replaced by another file while it was read", uris_[file]));
  }
  return reader;
}

const ParquetFiles& ParquetFiles::of(const ParquetSource& source) { return *source.parquet_; }

}  // namespace hvd::detail

namespace hvd {

using namespace detail;

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
    naming(parquet_->uris()[i], [&] {
      require_columns(*files[i].schema, columns, /*with_labels=*/true);
      require_same_kind(*files[i].schema, *files.front().schema, parquet_->uris().front(),
                        columns.labels);
    });
  }
}

}  // namespace hvd
