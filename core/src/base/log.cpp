#include <array>
#include <atomic>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include <hvd/core/log.hpp>

namespace hvd {
namespace {

// The setting is process-wide, because lines from contexts and from code without one share stderr.
std::atomic<LogLevel> level_now{LogLevel::warn};

constexpr std::array<std::string_view, 5> kLevels{"error", "warning", "info", "plan", "debug"};

}  // namespace

void set_log_level(LogLevel level) noexcept { level_now.store(level, std::memory_order_relaxed); }

bool log_enabled(LogLevel level) noexcept {
  return level <= level_now.load(std::memory_order_relaxed);
}

void log(LogLevel level, int rank, std::string_view message) {
  if (!log_enabled(level)) return;
  const std::string_view name = kLevels[static_cast<std::size_t>(level)];
  const std::string line = rank >= 0 ? fmt::format("hvd: [{}] {}: {}\n", rank, name, message)
                                     : fmt::format("hvd: {}: {}\n", name, message);
  // Each line is one write, so that lines of several ranks on one terminal do not mix.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace hvd
