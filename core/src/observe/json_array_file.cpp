#include "observe/json_array_file.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hvd/core/error.hpp>

namespace hvd::observe {
namespace {

constexpr std::size_t kStageBytes = std::size_t{256} << 10;
constexpr std::string_view kSeparator = ",\n";
constexpr std::string_view kTail = "\n]\n";

[[noreturn]] void fail(const std::string& path, int error) {
  throw Error(Errc::resource, fmt::format("cannot write the timeline {}: {}", path,
                                          std::system_category().message(error)));
}

// Makes a new file, so that a process that still reads the old one keeps it whole. It does not
// replace a device or a pipe of that name.
UniqueFd create(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw Error(Errc::resource,
                fmt::format("cannot write the timeline {}: it exists and is not a file", path));
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail(path, errno);
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) fail(path, errno);
  return fd;
}

}  // namespace

JsonArrayFile::JsonArrayFile(std::string path, std::string_view first, std::size_t max_bytes)
    : path_(std::move(path)), max_bytes_(max_bytes), fd_(create(path_)), staged_("[\n") {
  staged_ += first;
  flush();
}

bool JsonArrayFile::append(std::string_view element) {
  const std::size_t more = kSeparator.size() + element.size() + kTail.size();
  if (written_ + staged_.size() + more > max_bytes_) return false;
  append_to_full(element);
  return true;
}

void JsonArrayFile::append_to_full(std::string_view element) {
  if (staged_.size() > kStageBytes) flush();
  staged_ += kSeparator;
  staged_ += element;
}

void JsonArrayFile::flush() {
  if (staged_.empty()) return;
  const std::size_t elements = staged_.size();
  staged_ += kTail;
  for (std::size_t done = 0; done < staged_.size();) {
    const ssize_t wrote = ::pwrite(fd_.get(), staged_.data() + done, staged_.size() - done,
                                   static_cast<off_t>(written_ + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) fail(path_, wrote == 0 ? EIO : errno);
    done += static_cast<std::size_t>(wrote);
  }
  written_ += elements;
  staged_.clear();
}

}  // namespace hvd::observe
