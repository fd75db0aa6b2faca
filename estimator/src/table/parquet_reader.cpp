#include "table/parquet_reader.hpp"

#include <algorithm>
#include <mutex>

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <fmt/format.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <hvd/core/error.hpp>

#include "store/arrow_status.hpp"

namespace hvd::detail {

/// Forwards all calls to another file and keeps the first failure of the storage, because the
/// Parquet decoder reports such a failure in the same way as a damaged file.
class WatchedFile : public arrow::io::RandomAccessFile {
 public:
  explicit WatchedFile(std::shared_ptr<arrow::io::RandomAccessFile> file);

  /// Returns OK when all reads have succeeded so far.
  [[nodiscard]] arrow::Status failure() const;

  arrow::Status Close() override;
  [[nodiscard]] bool closed() const override;
  [[nodiscard]] arrow::Result<std::int64_t> Tell() const override;
  arrow::Status Seek(std::int64_t position) override;
  arrow::Result<std::int64_t> GetSize() override;
  arrow::Result<std::int64_t> Read(std::int64_t bytes, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t bytes) override;
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t bytes, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position,
                                                       std::int64_t bytes) override;

 private:
  template <class T>
  arrow::Result<T> watch(arrow::Result<T> result);

  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  mutable std::mutex mutex_;
  arrow::Status failure_;
};

WatchedFile::WatchedFile(std::shared_ptr<arrow::io::RandomAccessFile> file)
    : file_(std::move(file)) {
  set_mode(arrow::io::FileMode::READ);
}

arrow::Status WatchedFile::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

template <class T>
arrow::Result<T> WatchedFile::watch(arrow::Result<T> result) {
  if (!result.ok()) {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = result.status();
  }
  return result;
}

arrow::Status WatchedFile::Close() { return file_->Close(); }
bool WatchedFile::closed() const { return file_->closed(); }
arrow::Result<std::int64_t> WatchedFile::Tell() const { return file_->Tell(); }
arrow::Status WatchedFile::Seek(std::int64_t position) { return file_->Seek(position); }
arrow::Result<std::int64_t> WatchedFile::GetSize() { return watch(file_->GetSize()); }

arrow::Result<std::int64_t> WatchedFile::Read(std::int64_t bytes, void* out) {
  return watch(file_->Read(bytes, out));
}

arrow::Result<std::shared_ptr<arrow::Buffer>> WatchedFile::Read(std::int64_t bytes) {
  return watch(file_->Read(bytes));
}

arrow::Result<std::int64_t> WatchedFile::ReadAt(std::int64_t position, std::int64_t bytes,
                                                void* out) {
  return watch(file_->ReadAt(position, bytes, out));
}

arrow::Result<std::shared_ptr<arrow::Buffer>> WatchedFile::ReadAt(std::int64_t position,
                                                                  std::int64_t bytes) {
  return watch(file_->ReadAt(position, bytes));
}

namespace {

constexpr std::int64_t kBufferBytes = std::int64_t{1} << 20;  // per column

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& to) {
  if (field.is_leaf()) to.push_back(field.column_index);
  for (const auto& child : field.children) add_leaves(child, to);
}

}  // namespace

/// Runs `read`, which returns an arrow::Result, and throws Errc::resource for an error of the
/// storage and Errc::protocol for a damaged file.
template <class Read>
auto ParquetReader::guarded(const Read& read) const {
  const auto run = [&]() -> decltype(read()) {
    BEGIN_PARQUET_CATCH_EXCEPTIONS
    return read();
    END_PARQUET_CATCH_EXCEPTIONS
  };
  auto result = run();
  if (!result.ok()) {
    check(file_->failure(), fmt::format("cannot read {}", uri_));
    const bool memory = result.status().IsOutOfMemory();
    throw Error(memory ? Errc::resource : Errc::protocol,
                fmt::format("{}{}: {}", uri_, memory ? "" : " is damaged, or not Parquet",
                            text_of(result.status())));
  }
  return std::move(result).ValueUnsafe();
}

ParquetReader::ParquetReader(arrow::fs::FileSystem& file_system, const std::string& path,
                             std::string uri, arrow::MemoryPool* pool)
    : uri_(std::move(uri)) {
  auto file = file_system.OpenInputFile(path);
  if (!file.ok()) {
    throw Error(Errc::resource, fmt::format("cannot open {}: {}", uri_, text_of(file.status())));
  }
  file_ = std::make_shared<WatchedFile>(std::move(file).ValueUnsafe());

  parquet::ReaderProperties reading(pool);
  reading.enable_buffered_stream();
  reading.set_buffer_size(kBufferBytes);
  reading.set_page_checksum_verification(true);
  parquet::ArrowReaderProperties arrow_reading(/*use_threads=*/false);
  arrow_reading.set_pre_buffer(false);  // pre-buffering would hold whole row groups in memory
  reader_ = guarded([&]() -> arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> {
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(file_, reading));
    return builder.memory_pool(pool)->properties(arrow_reading)->Build();
  });
  schema_ = guarded([&]() -> arrow::Result<std::shared_ptr<arrow::Schema>> {
    std::shared_ptr<arrow::Schema> schema;
    ARROW_RETURN_NOT_OK(reader_->GetSchema(&schema));
    return schema;
  });
}

std::vector<std::int64_t> ParquetReader::row_groups() const {
  const auto metadata = reader_->parquet_reader()->metadata();
  std::vector<std::int64_t> rows;
  for (int group = 0; group < metadata->num_row_groups(); ++group) {
    rows.push_back(metadata->RowGroup(group)->num_rows());
  }
  return rows;
}

void ParquetReader::begin(int row_group, const std::vector<std::string>& columns,
                          std::int64_t rows) {
  std::vector<int> leaves;
  for (const auto& field : reader_->manifest().schema_fields) {
    if (std::find(columns.begin(), columns.end(), field.field->name()) != columns.end()) {
      add_leaves(field, leaves);
    }
  }
  batches_.reset();
  reader_->set_batch_size(rows);
  batches_ = guarded([&] { return reader_->GetRecordBatchReader({row_group}, leaves); });
}

std::shared_ptr<arrow::RecordBatch> ParquetReader::next() {
  return guarded([&]() -> arrow::Result<std::shared_ptr<arrow::RecordBatch>> {
    std::shared_ptr<arrow::RecordBatch> batch;
    ARROW_RETURN_NOT_OK(batches_->ReadNext(&batch));
    return batch;
  });
}

}  // namespace hvd::detail
