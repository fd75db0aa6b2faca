// Declares the 32-byte secret of a job and the identity that a process proves with it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <hvd/core/config.hpp>
#include <hvd/core/internal/fd.hpp>

namespace hvd {

/// A secret is wiped on destruction. It is never printed and never put in argv, the environment, a
/// file or a log.
class Secret {
 public:
  static constexpr std::size_t kSize = 32;
  /// Makes a secret that is all zero, as on the ranks of one host that were given none. Unix
  /// sockets and a check of the peer's uid then protect them.
  Secret() noexcept = default;
  explicit Secret(std::span<const std::byte, kSize> bytes) noexcept {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin());
  }
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  [[nodiscard]] static Secret random();
  /// Reads 32 bytes from the start of `fd`, which stays open. Throws Errc::unauthenticated.
  [[nodiscard]] static Secret from_fd(int fd);
  /// Reads a file, which must belong to this user with mode 0600. Throws Errc::unauthenticated.
  [[nodiscard]] static Secret from_file(const std::string& path);
  /// Returns a sealed memfd without CLOEXEC that has the secret, for a child to inherit.
  [[nodiscard]] UniqueFd to_inheritable_fd() const;
  [[nodiscard]] const std::array<std::byte, kSize>& bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool empty() const noexcept;

 private:
  std::array<std::byte, kSize> bytes_{};
};

/// Identifies this process towards its peers.
struct Identity {
  std::string job_id;
  std::uint32_t epoch = 0;
  int rank = 0;  ///< -1 for the launcher
  Secret secret;
};

}  // namespace hvd
