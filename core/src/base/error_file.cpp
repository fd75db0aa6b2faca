#include "base/error_file.hpp"

#include <cerrno>
#include <chrono>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <hvd/core/internal/fd.hpp>
#include <hvd/core/log.hpp>

#include "observe/json_text.hpp"

namespace hvd::detail {
namespace {

// torchrun prints "py_callstack" if the file has it, and the message otherwise.
std::string error_json(std::string_view message) {
  constexpr std::size_t kLongest = 16'384;
  std::string text;
  observe::append_json_string(text, fmt::format("hvd::Error: {}", message), kLongest);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format(
      R"({{"message":{{"message":{0},"extraInfo":{{"py_callstack":{0},"timestamp":"{1}"}}}}}})",
      text, std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

}  // namespace

void write_error_file(const std::string& path, std::string_view message) noexcept try {
  if (path.empty()) return;
  const std::string json = error_json(message);
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file && errno == EEXIST) return;
  if (!file || ::write(file.get(), json.data(), json.size()) != static_cast<ssize_t>(json.size())) {
    log(LogLevel::warn, -1,
        fmt::format("cannot write {}: {}", path, std::system_category().message(errno)));
  }
} catch (const std::exception&) {
  // The error itself still reaches the user.
}

}  // namespace hvd::detail
