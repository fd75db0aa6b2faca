// Lists the files of a ParquetSource, and the position of each row group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <arrow/type_fwd.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/estimator/parquet_source.hpp>

#include "store/file_system.hpp"
#include "table/parquet_reader.hpp"

namespace hvd::detail {

/// Returns the sorted paths, relative to the folder, of the files in it that
/// `ParquetSource::open` takes. There are none when there is no such folder.
[[nodiscard]] std::vector<std::string> parquet_files_below(const Location& folder);

class ParquetFiles {
 public:
  struct File {
    std::string path;  ///< the path in the file system
    std::shared_ptr<arrow::Schema> schema;
    std::vector<std::int64_t> row_groups;
  };
  struct RowGroup {
    std::size_t file = 0;
    int index = 0;               ///< its index in the file
    std::int64_t in_file = 0;    ///< the number of its first row in the file
    std::int64_t in_source = 0;  ///< the number of its first row in the source
    std::int64_t rows = 0;
  };

  ParquetFiles(const std::string& uri, const StorageOptions& options);
  [[nodiscard]] static const ParquetFiles& of(const ParquetSource& source);

  [[nodiscard]] const std::string& uri() const noexcept { return location_.uri; }
  [[nodiscard]] const std::vector<std::string>& uris() const noexcept { return uris_; }
  [[nodiscard]] const std::vector<File>& files() const noexcept { return files_; }
  [[nodiscard]] const std::vector<RowGroup>& groups() const noexcept { return groups_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }

  /// Throws Errc::protocol when the row groups of the file have changed since it was listed.
  [[nodiscard]] std::unique_ptr<ParquetReader> open(
      std::size_t file, arrow::MemoryPool* pool = arrow::default_memory_pool()) const;

 private:
  Location location_;
  std::vector<std::string> uris_;
  std::vector<File> files_;
  std::vector<RowGroup> groups_;
  std::int64_t rows_ = 0;
};

/// Calls `what`, and puts the URI of the file in front of the message of an Error.
template <class What>
auto naming(const std::string& uri, const What& what) {
  try {
    return what();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", uri, error.what()));
  }
}

}  // namespace hvd::detail
