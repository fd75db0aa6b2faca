// Tells a storage that fails from a file that is damaged: decoders report both alike.
#pragma once

#include <memory>
#include <mutex>

#include <arrow/io/interfaces.h>

namespace hvd {

/// Passes on to another file and remembers the first failure of the storage.
class WatchedFile : public arrow::io::RandomAccessFile {
 public:
  explicit WatchedFile(std::shared_ptr<arrow::io::RandomAccessFile> file);

  /// OK when all reads succeeded so far.
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

}  // namespace hvd
