// Writes the log, one line per event on stderr, prefixed with the rank once it is known.
#pragma once

#include <cstdint>
#include <string_view>

namespace hvd {

/// `plan` shows which algorithm and transport was picked and why; it sits between info and debug.
enum class LogLevel : std::uint8_t { error, warn, info, plan, debug };

/// Lines above `level` are dropped. Any thread may call it.
void set_log_level(LogLevel level) noexcept;
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;
/// `rank` prefixes the line when it is not negative. Any thread may call it.
void log(LogLevel level, int rank, std::string_view message);

}  // namespace hvd
