#include <cerrno>
#include <system_error>

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <fmt/format.h>
#include <unistd.h>

#include "program/program.hpp"
#include "store/arrow_status.hpp"

namespace hvd::detail {

namespace {

arrow::Status refused(const char* what) {
  const std::error_code error(errno, std::generic_category());
  return arrow::Status::IOError("cannot ", what, ": ", error.message());
}

/// Reads a descriptor that the caller owns. A read returns fewer bytes than requested only at the
/// end of the stream.
class PipeInput final : public arrow::io::InputStream {
 public:
  explicit PipeInput(int fd) : fd_(fd) {}

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  [[nodiscard]] bool closed() const override { return closed_; }
  [[nodiscard]] arrow::Result<std::int64_t> Tell() const override { return position_; }
  arrow::Result<std::int64_t> Read(std::int64_t size, void* out) override {
    std::int64_t done = 0;
    while (done < size) {
      const ssize_t n =
          ::read(fd_, static_cast<char*>(out) + done, static_cast<std::size_t>(size - done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return refused("read the input");
      if (n == 0) break;
      done += n;
    }
    position_ += done;
    return done;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t size) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(size));
    ARROW_ASSIGN_OR_RAISE(const std::int64_t done, Read(size, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(done));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }

 private:
  int fd_;
  bool closed_ = false;
  std::int64_t position_ = 0;
};

class PipeOutput final : public arrow::io::OutputStream {
 public:
  explicit PipeOutput(int fd) : fd_(fd) {}

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  [[nodiscard]] bool closed() const override { return closed_; }
  [[nodiscard]] arrow::Result<std::int64_t> Tell() const override { return position_; }
  arrow::Status Write(const void* data, std::int64_t size) override {
    std::int64_t done = 0;
    while (done < size) {
      const ssize_t n = ::write(fd_, static_cast<const char*>(data) + done,
                                static_cast<std::size_t>(size - done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return refused("write the output");
      done += n;
    }
    position_ += done;
    return arrow::Status::OK();
  }
  using arrow::io::OutputStream::Write;

 private:
  int fd_;
  bool closed_ = false;
  std::int64_t position_ = 0;
};

/// Throws Errc::protocol for an error of Arrow, because the input comes from another process and an
/// error means that it is damaged.
void require_read(const arrow::Status& status) {
  if (status.ok()) return;
  throw Error(status.IsOutOfMemory() ? Errc::resource : Errc::protocol,
              fmt::format("the Arrow stream to transform: {}", text_of(status)));
}

template <class T>
T take_read(arrow::Result<T> result) {
  require_read(result.status());
  return std::move(result).ValueUnsafe();
}

}  // namespace

void score_stream(const Model& model, int input, int output) {
  const auto source = std::make_shared<PipeInput>(input);
  const auto sink = std::make_shared<PipeOutput>(output);
  const auto reader = take_read(arrow::ipc::RecordBatchStreamReader::Open(source));
  const std::string what = "the output";
  const auto writer = take(arrow::ipc::MakeStreamWriter(sink, model.output_schema()), what);
  std::int64_t rows = 0;
  for (;;) {
    const std::shared_ptr<arrow::RecordBatch> batch = take_read(reader->Next());
    if (!batch) break;
    require_read(batch->ValidateFull());  // offsets in a damaged stream may point anywhere
    check(writer->WriteRecordBatch(*model.outputs(*batch, rows)), what);
    rows += batch->num_rows();
  }
  check(writer->Close(), what);
}

}  // namespace hvd::detail
