// Views text as bytes and bytes as text, and checks and reads text from outside.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

namespace hvd::detail {

/// Returns a view of the same memory, which has to outlive it.
[[nodiscard]] inline std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text));
}
/// Returns a view of the same memory, which has to outlive it.
[[nodiscard]] inline std::string_view text_of(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Tells whether the text is ASCII without blanks and control characters.
[[nodiscard]] inline bool is_graphic(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
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

}  // namespace hvd::detail
