// Declares an owned file descriptor, which is closed on destruction, and `close_on_exec`.
#pragma once

#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace hvd {

class UniqueFd {
 public:
  UniqueFd() noexcept = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Gives the descriptor up without closing it.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  /// Closes the descriptor held and takes `fd`.
  void reset(int fd = -1) noexcept {
    // close() is not repeated on EINTR, because on Linux the descriptor is gone in any case.
    if (const int old = std::exchange(fd_, fd); old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

/// Keeps the descriptor from the programs that this process starts from now on. Asio's sockets need
/// it.
inline void close_on_exec(int fd) noexcept { static_cast<void>(::fcntl(fd, F_SETFD, FD_CLOEXEC)); }

}  // namespace hvd
