#include "parquet_files.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

#include "arrow_status.hpp"

namespace hvd {

namespace {

/// Spark's `_SUCCESS`, `_temporary/…` and `.part-….crc`.
bool is_hidden(std::string_view below) {
  while (true) {
    if (!below.empty() && (below.front() == '_' || below.front() == '.')) return true;
    const std::size_t slash = below.find('/');
    if (slash == std::string_view::npos) return false;
    below.remove_prefix(slash + 1);
  }
}

/// Relative to the location; one empty name when it is itself a file. Sorted.
std::vector<std::string> parquet_files_in(const Location& location) {
  const auto info = take(location.file_system->GetFileInfo(location.path), location.uri);
  if (info.type() == arrow::fs::FileType::NotFound) {
    throw Error(Errc::resource, fmt::format("{}: no such file or folder", location.uri));
  }
  if (info.IsFile()) return {""};
  arrow::fs::FileSelector selector;
  selector.base_dir = location.path;
  selector.recursive = true;
  std::vector<std::string> names;
  for (const auto& found : take(location.file_system->GetFileInfo(selector), location.uri)) {
    const std::string below =
        found.path().substr(std::min(found.path().size(), location.path_of("x").size() - 1));
    if (found.IsFile() && below.ends_with(".parquet") && !is_hidden(below)) names.push_back(below);
  }
  if (names.empty()) {
    throw Error(Errc::invalid_argument, fmt::format("{}: no *.parquet in it", location.uri));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

ParquetFiles::ParquetFiles(const std::string& uri, const StorageOptions& options)
    : location_(locate(uri, options)) {
  for (const std::string& name : parquet_files_in(location_)) {
    uris_.push_back(location_.uri_of(name));
    File file{.path = location_.path_of(name), .schema = nullptr, .row_groups = {}};
    const ParquetReader reader(*location_.file_system, file.path, uris_.back());
    file.schema = reader.schema();
    if (!files_.empty() && files_.front().schema->Equals(*file.schema)) {
      file.schema = files_.front().schema;  // kept once
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

}  // namespace hvd
