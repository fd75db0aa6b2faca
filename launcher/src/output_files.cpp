#include "output_files.hpp"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "exit_codes.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw LaunchError(kExitResource, fmt::format("cannot write {}: {}", in_quotes(path), reason));
}

}  // namespace

OutputFiles::OutputFiles(const std::string& directory, int ranks, bool append)
    : directory_(directory) {
  for (int rank = 0; rank < ranks; ++rank) {
    const auto place = fmt::format("{}/rank.{}", directory, rank);
    std::error_code error;
    std::filesystem::create_directories(place, error);
    if (error) refuse(place, error.message());
    for (const char* name : {"stdout", "stderr"}) {
      const auto path = fmt::format("{}/{}", place, name);
      files_.emplace_back(::open(
          path.c_str(), O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC) | O_CLOEXEC, 0666));
      if (!files_.back()) refuse(path, error_text(errno));
    }
  }
}

void OutputFiles::write(int rank, Stream stream, std::string_view bytes) {
  const auto index = 2 * static_cast<std::size_t>(rank) + static_cast<std::size_t>(stream);
  const int fd = files_.at(index).get();
  while (!bytes.empty()) {
    const ssize_t size = ::write(fd, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) refuse(directory_, error_text(errno));
    bytes.remove_prefix(static_cast<std::size_t>(size));
  }
}

}  // namespace hvd::launcher
