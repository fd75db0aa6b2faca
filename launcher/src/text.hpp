// Text from outside, made fit for one line of a message; command lines a shell would read back.
#pragma once

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

/// "SIGKILL" for 9; "signal 70" where there is no name.
[[nodiscard]] std::string signal_name(int signal);

/// What an errno value means.
[[nodiscard]] std::string error_text(int error);

}  // namespace hvd::launcher
