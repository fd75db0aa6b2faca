#include "observe/json_array_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>  // rename
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hvd/core/error.hpp>

namespace hvd::observe {
namespace {

constexpr std::size_t kStageBytes = std::size_t{256} << 10;
constexpr std::size_t kMostGrowth = std::size_t{64} << 20;
constexpr std::string_view kTail = "\n]\n";
constexpr std::string_view kSeparator = ",\n";

[[noreturn]] void fail(const std::string& path, int error) {
  throw Error(Errc::resource, fmt::format("cannot write the timeline {}: {}", path,
                                          std::system_category().message(error)));
}

void write_all(const std::string& path, int fd, std::string_view text, std::size_t offset) {
  while (!text.empty()) {
    const ssize_t wrote = ::pwrite(fd, text.data(), text.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) fail(path, wrote == 0 ? EIO : errno);
    text.remove_prefix(static_cast<std::size_t>(wrote));
    offset += static_cast<std::size_t>(wrote);
  }
}

void copy_all(const std::string& path, int to, int from, std::size_t bytes) {
  off_t offset = 0;  // sendfile moves the output's own position
  while (static_cast<std::size_t>(offset) < bytes) {
    const ssize_t sent = ::sendfile(to, from, &offset, bytes - static_cast<std::size_t>(offset));
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) fail(path, sent == 0 ? EIO : errno);
  }
}

// Renaming over a device or a pipe would destroy it.
void require_regular(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw Error(Errc::resource,
                fmt::format("cannot write the timeline {}: it exists and is not a file", path));
  }
}

/// A file under another name, until it takes the place of the one at `path`.
class Replacement {
 public:
  explicit Replacement(const std::string& path)
      : path_(path),
        temporary_(fmt::format("{}.part", path)),
        fd_(::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666)) {
    if (!fd_) fail(path, errno);
  }
  ~Replacement() {
    if (fd_) ::unlink(temporary_.c_str());
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] UniqueFd take_over() {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, errno);
    return std::move(fd_);
  }

 private:
  const std::string& path_;
  std::string temporary_;
  UniqueFd fd_;
};

}  // namespace

JsonArrayFile::JsonArrayFile(std::string path, std::string_view first, std::size_t max_bytes)
    : path_(std::move(path)),
      max_bytes_(std::max(max_bytes, kFirstBytes) / kPage * kPage),
      stage_(static_cast<char*>(std::aligned_alloc(kPage, kStageBytes))) {
  if (!stage_) throw std::bad_alloc();
  require_regular(path_);
  put(0, "[\n");
  put(end_, first.substr(0, kMaxElement));
  replace(kFirstBytes);
}

bool JsonArrayFile::append(std::string_view element) { return append_within(element, max_bytes_); }

void JsonArrayFile::append_to_full(std::string_view element) {
  if (!append(element) && !append_within(element, capacity_ + kPage)) {
    throw Error(Errc::internal, "an event of the timeline does not fit a page");
  }
}

bool JsonArrayFile::append_within(std::string_view element, std::size_t max_bytes) {
  const std::size_t size = kSeparator.size() + element.size();
  if (element.size() > kMaxElement) {
    throw Error(Errc::internal, "an event of the timeline is longer than a page");
  }
  std::size_t from = end_;
  if (from % kPage + size > kPage) from = (from + kPage - 1) / kPage * kPage;
  if (!make_room(from + size, max_bytes)) return false;
  std::memset(stage_.get() + (end_ - base_), ' ', from - end_);
  put(from, kSeparator);
  put(end_, element);
  return true;
}

void JsonArrayFile::flush() {
  if (written_ == end_) return;
  write_all(path_, fd_.get(), {stage_.get() + (written_ - base_), end_ - written_}, written_);
  written_ = end_;
  rebase();
}

void JsonArrayFile::close() {
  flush();
  replace(end_ + kTail.size());
  fd_.reset();
}

bool JsonArrayFile::make_room(std::size_t needed, std::size_t max_bytes) {
  while (needed + kTail.size() > capacity_) {
    if (capacity_ >= max_bytes) return false;
    flush();
    replace(std::min(max_bytes, capacity_ + std::min(capacity_, kMostGrowth)));
  }
  if (needed - base_ > kStageBytes) flush();
  return true;
}

void JsonArrayFile::put(std::size_t offset, std::string_view text) {
  std::memcpy(stage_.get() + (offset - base_), text.data(), text.size());
  end_ = offset + text.size();
}

// The first time, there is no file yet and all content is staged.
void JsonArrayFile::replace(std::size_t capacity) {
  Replacement next(path_);
  if (fd_) {
    copy_all(path_, next.fd(), fd_.get(), end_);
  } else {
    write_all(path_, next.fd(), {stage_.get(), end_}, 0);
  }
  const std::string blanks(std::size_t{64} << 10, ' ');
  const std::size_t tail = capacity - kTail.size();
  for (std::size_t at = end_; at < tail; at += std::min(blanks.size(), tail - at)) {
    write_all(path_, next.fd(), std::string_view(blanks).substr(0, tail - at), at);
  }
  write_all(path_, next.fd(), kTail, tail);
  fd_ = next.take_over();
  capacity_ = capacity;
  written_ = end_;
  rebase();
}

// What lies before written_ is never written again.
void JsonArrayFile::rebase() noexcept { base_ = written_ / kPage * kPage; }

}  // namespace hvd::observe
