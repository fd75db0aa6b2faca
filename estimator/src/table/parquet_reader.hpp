// Reads one Parquet file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <arrow/filesystem/filesystem.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>

namespace hvd::detail {

class WatchedFile;

/// Holds a small buffer of fixed size and one decoded page for each column, however large a row
/// group is. Throws Errc::resource when the storage fails, and Errc::protocol when the file is
/// damaged.
class ParquetReader {
 public:
  ParquetReader(arrow::fs::FileSystem& file_system, const std::string& path, std::string uri,
                arrow::MemoryPool* pool = arrow::default_memory_pool());

  [[nodiscard]] const std::shared_ptr<arrow::Schema>& schema() const noexcept { return schema_; }
  [[nodiscard]] std::vector<std::int64_t> row_groups() const;

  /// Starts a row group. After this, `next` returns its rows from the first on, `rows` at a time,
  /// with these columns only. The columns must exist.
  void begin(int row_group, const std::vector<std::string>& columns, std::int64_t rows);
  /// Returns null at the end of the row group.
  [[nodiscard]] std::shared_ptr<arrow::RecordBatch> next();

 private:
  template <class Read>
  auto guarded(const Read& read) const;

  std::string uri_;
  std::shared_ptr<WatchedFile> file_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::Schema> schema_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
};

}  // namespace hvd::detail
