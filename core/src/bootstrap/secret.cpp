#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/secret.hpp>

#include "net/crypto.hpp"

namespace hvd {
namespace {

std::string errno_text() { return std::system_category().message(errno); }

// Returns the number of bytes read from the start of `fd`, at most `out.size()`, or -1 with errno
// set.
ssize_t read_start(int fd, std::span<std::byte> out) {
  std::size_t size = 0;
  while (size < out.size()) {
    const ssize_t n = ::pread(fd, out.data() + size, out.size() - size, static_cast<off_t>(size));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(size);
}

Secret read_secret(int fd, const std::string& source) {
  // The buffer has one byte more than a secret, to notice a file that holds something else.
  std::array<std::byte, Secret::kSize + 1> buffer{};
  const ssize_t size = read_start(fd, buffer);
  std::array<std::byte, Secret::kSize> bytes{};
  std::copy_n(buffer.begin(), bytes.size(), bytes.begin());
  net::wipe(buffer);
  const Secret secret(bytes);
  net::wipe(bytes);
  if (size < 0) {
    throw Error(Errc::unauthenticated,
                fmt::format("cannot read the job's secret from {}: {}", source, errno_text()));
  }
  if (size != static_cast<ssize_t>(Secret::kSize)) {
    throw Error(Errc::unauthenticated,
                fmt::format("{} does not hold the {} bytes of a secret", source, Secret::kSize));
  }
  return secret;
}

}  // namespace

Secret::~Secret() { net::wipe(bytes_); }

Secret Secret::random() {
  Secret secret;
  net::fill_random(secret.bytes_);
  return secret;
}

Secret Secret::from_fd(int fd) { return read_secret(fd, fmt::format("descriptor {}", fd)); }

Secret Secret::from_file(const std::string& path) {
  // Kubernetes mounts a secret as a symbolic link, so links are followed. The checks apply to the
  // opened file, so it does not matter who placed the link. O_NONBLOCK prevents opening a FIFO from
  // waiting for a writer.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) {
    throw Error(Errc::unauthenticated,
                fmt::format("cannot open the secret file {}: {}", path, errno_text()));
  }
  struct stat status {};
  const bool safe = ::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                    status.st_uid == ::geteuid() && (status.st_mode & 0177) == 0;
  if (!safe) {
    throw Error(
        Errc::unauthenticated,
        fmt::format(
            "the secret file {} must be, or lead to, a regular file of this user, mode 0600",
            path));
  }
  return read_secret(fd.get(), path);
}

UniqueFd Secret::to_inheritable_fd() const {
  UniqueFd fd(::memfd_create("hvd-secret", MFD_ALLOW_SEALING));
  const bool written =
      fd && ::pwrite(fd.get(), bytes_.data(), kSize, 0) == static_cast<ssize_t>(kSize);
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (!written || ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    throw Error(Errc::resource,
                fmt::format("cannot put the secret into a memfd: {}", errno_text()));
  }
  return fd;
}

bool Secret::empty() const noexcept {
  return net::equal_in_constant_time(bytes_, std::array<std::byte, kSize>{});
}

}  // namespace hvd
