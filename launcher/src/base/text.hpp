// Reads text, formats it for messages and for shells, and throws the errors that many parts have in
// common.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/internal/text.hpp>

namespace hvd::launcher {

/// Returns the text in single quotes, without characters that a terminal interprets. A long text is
/// shortened.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// Quotes the text so that a POSIX shell reads it as one word.
[[nodiscard]] std::string shell_word(std::string_view text);

/// Splits the text at blanks.
[[nodiscard]] std::vector<std::string> split_words(const std::string& text);

using detail::rank_ranges;
using detail::ranks_text;

/// Returns the seconds of a duration for a text.
[[nodiscard]] inline double in_seconds(std::chrono::milliseconds duration) {
  return static_cast<double>(duration.count()) / 1000.0;
}

/// Returns a text such as "512 MiB", and from 10,000 MiB on such as "12.5 GiB".
[[nodiscard]] std::string in_units(std::uint64_t bytes);

/// Returns "SIGKILL" for 9, and "signal 70" for a number without a name.
[[nodiscard]] std::string signal_name(int signal);

/// Returns text such as "received signal 15 (SIGTERM)".
[[nodiscard]] std::string received_signal(int signal);

/// Returns the message that the time of `--timeout` is over.
[[nodiscard]] std::string time_is_over(std::chrono::milliseconds timeout);

/// Throws LaunchError (usage) with the text "OPTION 'VALUE': WHY".
[[noreturn]] void refuse_value(std::string_view option, std::string_view value,
                               std::string_view why);

/// Throws LaunchError (71) with `what` and the text for errno.
[[noreturn]] void refuse_system(std::string_view what);

/// Returns the content of a file, also of one in /proc whose size is unknown. Returns an empty text
/// when the file cannot be read, as where a process has ended.
[[nodiscard]] std::string read_file(const std::string& path);

/// Returns the text for an errno value.
[[nodiscard]] std::string error_text(int error);

}  // namespace hvd::launcher
