#include "state/atomic_file.hpp"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/fd.hpp>

namespace hvd::detail {

namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  const std::error_code error(errno, std::generic_category());
  throw Error(Errc::resource,
              fmt::format("cannot {} {}: {}", what, path.string(), error.message()));
}

/// A new file beside another one, and its path.
struct NewFile {
  UniqueFd fd;
  std::filesystem::path path;
};

NewFile create_beside(const std::filesystem::path& path) {
  constexpr int kAttempts = 100;  // a process with this id may have left some names behind
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    NewFile file;
    file.path = fmt::format("{}.tmp.{}.{}", path.string(), ::getpid(), attempt);
    file.fd = UniqueFd(::open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.fd) return file;
    if (errno != EEXIST) break;
  }
  fail("create a file beside", path);
}

void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write", path);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

/// Removes a file in its destructor, unless `keep` was called.
class Temporary {
 public:
  explicit Temporary(std::filesystem::path path) : path_(std::move(path)) {}
  ~Temporary() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  void keep() noexcept { path_.clear(); }

 private:
  std::filesystem::path path_;
};

}  // namespace

void write_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const NewFile file = create_beside(path);
  Temporary temporary(file.path);
  write_all(file.fd.get(), bytes, file.path);
  if (::fsync(file.fd.get()) != 0) fail("flush", file.path);
  if (::rename(file.path.c_str(), path.c_str()) != 0) fail("rename a file to", path);
  temporary.keep();
  const std::filesystem::path folder =
      path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0) fail("flush the folder of", path);
}

Bytes read_file(const std::filesystem::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail("open", path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("read", path);
  if (!S_ISREG(status.st_mode)) {
    throw Error(Errc::resource, fmt::format("cannot read {}: not a file", path.string()));
  }
  Bytes bytes(static_cast<std::size_t>(status.st_size));
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path);
    if (got == 0) break;
    at += static_cast<std::size_t>(got);
  }
  bytes.resize(at);
  return bytes;
}

}  // namespace hvd::detail
