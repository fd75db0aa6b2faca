#include "result.hpp"

#include <cerrno>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/spark.hpp>

#include "config/environment.hpp"

namespace hvd {
namespace {

constexpr std::string_view kVariable = "HVD_RESULT_FD";

[[noreturn]] void fail_to(const char* what) {
  const int reason = errno;
  const bool wrong = reason == EBADF || reason == EINVAL || reason == EPERM || reason == ESPIPE;
  throw Error(wrong ? Errc::invalid_argument : Errc::resource,
              fmt::format("{}: cannot {} the result: {}", kVariable, what,
                          std::system_category().message(reason)));
}

void write_at(int fd, std::span<const std::byte> bytes, std::size_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_to("write");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::size_t>(n);
  }
}

bool hand_over(ResultKind kind, std::span<const std::byte> bytes) {
  const auto value = detail::environment_variable(kVariable);
  if (!value) return false;
  const auto fd = detail::to_number<int>(*value);
  if (!fd || *fd < 0) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} is '{}': expected a descriptor", kVariable, *value));
  }
  write_result(*fd, kind, bytes);
  return true;
}

}  // namespace

void write_result(int fd, ResultKind kind, std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxResult) {
    throw Error(Errc::invalid_argument,
                fmt::format("a result of {} bytes is more than {}", bytes.size(), kMaxResult));
  }
  if (::ftruncate(fd, 0) != 0) fail_to("replace");
  write_at(fd, bytes, 1);
  // The kind is written last, so that a reader ignores an incomplete result.
  const std::byte first{static_cast<unsigned char>(kind)};
  write_at(fd, {&first, 1}, 0);
}

bool set_result(std::span<const std::byte> bytes) { return hand_over(ResultKind::bytes, bytes); }

bool set_result(std::string_view json) {
  return hand_over(ResultKind::json, detail::bytes_of(json));
}

}  // namespace hvd
