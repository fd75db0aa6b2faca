// Views text as bytes and bytes as text, checks, splits and reads text from outside, and lists
// ranks.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace hvd::detail {

/// Returns a view of the same memory, which has to outlive it.
[[nodiscard]] inline std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text));
}
/// Returns a view of the same memory, which has to outlive it.
[[nodiscard]] inline std::string_view text_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Tells whether the character is an ASCII letter, in any locale.
[[nodiscard]] constexpr bool is_letter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
/// Tells whether the character is an ASCII letter or digit, in any locale.
[[nodiscard]] constexpr bool is_alphanumeric(char c) noexcept {
  return is_letter(c) || (c >= '0' && c <= '9');
}

/// Tells whether the text is ASCII without blanks and control characters.
[[nodiscard]] inline bool is_graphic(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

/// Splits the text, which has to outlive its parts. No empty part follows a separator at the end.
[[nodiscard]] inline std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    parts.push_back(text.substr(0, text.find(separator)));
    text.remove_prefix(std::min(parts.back().size() + 1, text.size()));
  }
  return parts;
}

/// Reads the whole text as a number, without signs but '-', blanks or trailing characters.
template <typename T>
[[nodiscard]] std::optional<T> to_number(std::string_view text) {
  T value{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc{} || end != last) return std::nullopt;
  return value;
}

/// Lists ascending ranks for a message, such as "0, 2-511".
template <class Ranks>
[[nodiscard]] std::string rank_ranges(const Ranks& ranks) {
  std::string text;
  for (auto next = ranks.begin(); next != ranks.end();) {
    const int first = *next;
    int last = first;
    while (++next != ranks.end() && *next == last + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(first);
    if (last > first) text += '-' + std::to_string(last);
  }
  return text;
}

/// Names ascending ranks in a sentence, such as "rank 2" or "ranks 0, 2-511".
template <class Ranks>
[[nodiscard]] std::string ranks_text(const Ranks& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + rank_ranges(ranks);
}

}  // namespace hvd::detail
