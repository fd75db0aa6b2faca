// Text from outside, made fit for one line of a message; command lines a shell would read back; the
// errors that many parts throw.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

/// In single quotes, without characters that a terminal interprets, shortened when long.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// One word as a POSIX shell reads it back.
[[nodiscard]] std::string shell_word(std::string_view text);

/// What stands between blanks.
[[nodiscard]] std::vector<std::string> split_words(const std::string& text);

/// "0-3, 7" for sorted ranks.
[[nodiscard]] std::string rank_ranges(const std::vector<int>& ranks);

/// "512 MiB", and from 10,000 MiB on "12.5 GiB".
[[nodiscard]] std::string in_units(std::uint64_t bytes);

/// "SIGKILL" for 9; "signal 70" where there is no name.
[[nodiscard]] std::string signal_name(int signal);

/// Throws LaunchError (usage): "OPTION 'VALUE': WHY".
[[noreturn]] void refuse_value(std::string_view option, std::string_view value,
                               std::string_view why);

/// Throws LaunchError (71): `what`, and what errno says.
[[noreturn]] void refuse_system(std::string_view what);

/// What an errno value means.
[[nodiscard]] std::string error_text(int error);

}  // namespace hvd::launcher
