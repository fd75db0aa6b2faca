#include "watched_file.hpp"

#include <arrow/buffer.h>
#include <arrow/result.h>
#include <arrow/status.h>

namespace hvd {

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

}  // namespace hvd
