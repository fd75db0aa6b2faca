#include "base/text.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "base/exit_codes.hpp"

namespace hvd::launcher {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 100;
  std::string shown(text.substr(0, kMost));
  std::replace_if(
      shown.begin(), shown.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return fmt::format("'{}'{}", shown, text.size() > kMost ? "..." : "");
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%^";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(text);
  }
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::string in_units(std::uint64_t bytes) {
  constexpr double kMega = 1 << 20;
  const double mega = static_cast<double>(bytes) / kMega;
  return mega < 10'000 ? fmt::format("{:.0f} MiB", mega) : fmt::format("{:.1f} GiB", mega / 1024);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::string received_signal(int signal) {
  return fmt::format("received signal {} ({})", signal, signal_name(signal));
}

std::string time_is_over(std::chrono::milliseconds timeout) {
  return fmt::format("the job was not over after {:.1f} s", in_seconds(timeout));
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();  // iterators would throw when a process ends whose file this is
  return std::move(text).str();
}

std::string error_text(int error) {
  const char* text = ::strerrordesc_np(error);
  return text != nullptr ? text : fmt::format("error {}", error);
}

void refuse_value(std::string_view option, std::string_view value, std::string_view why) {
  throw LaunchError(kExitUsage, fmt::format("{} {}: {}", option, in_quotes(value), why));
}

void refuse_system(std::string_view what) {
  const int reason = errno;
  throw LaunchError(kExitResource, fmt::format("{}: {}", what, error_text(reason)));
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = text.find_first_not_of(' '); begin != std::string::npos;) {
    const auto end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(' ', end);
  }
  return words;
}

}  // namespace hvd::launcher
