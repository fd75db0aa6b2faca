// Defines the exit codes of hvdrun where no rank's own code applies. docs/reference/hvdrun.md has
// the table.
#pragma once

#include <stdexcept>
#include <string>

#include <hvd/core/error.hpp>

namespace hvd::launcher {

inline constexpr int kExitUsage = 64;
inline constexpr int kExitHostUnreachable = 69;
inline constexpr int kExitInternal = 70;
inline constexpr int kExitResource = 71;
inline constexpr int kExitRetry = 75;  ///< an elastic job has lost too many ranks, or too often
inline constexpr int kExitProtocol = 76;
inline constexpr int kExitUnauthenticated = 77;
inline constexpr int kExitDeadline = 124;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitSignalBase = 128;

/// Returns the exit code of hvdrun when the library throws `error`.
[[nodiscard]] inline int exit_code(const Error& error) noexcept {
  return error.code() == Errc::resource           ? kExitResource
         : error.code() == Errc::invalid_argument ? kExitUsage
                                                  : kExitInternal;
}

/// An error that ends hvdrun. It holds one line for the user and the code to exit with.
class LaunchError : public std::runtime_error {
 public:
  LaunchError(int code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

}  // namespace hvd::launcher
