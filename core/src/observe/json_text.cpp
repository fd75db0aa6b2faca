#include "observe/json_text.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace hvd::observe {
namespace {

constexpr std::size_t kLongestPiece = 6;  // "\u001f"

unsigned char byte_at(std::string_view text, std::size_t i) noexcept {
  return static_cast<unsigned char>(text[i]);
}

// The range of the second byte depends on the first, which excludes overlong forms, surrogates and
// code points above U+10FFFF.
bool second_fits(unsigned char first, unsigned char second) noexcept {
  switch (first) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return second >= 0x80 && second <= 0xBF;
  }
}

void append_json_character(std::string& to, char c) {
  switch (c) {
    case '"':
      to += "\\\"";
      return;
    case '\\':
      to += "\\\\";
      return;
    case '\n':
      to += "\\n";
      return;
    case '\t':
      to += "\\t";
      return;
    default:
      if (static_cast<unsigned char>(c) < 0x20) {
        fmt::format_to(std::back_inserter(to), "\\u{:04x}", static_cast<unsigned>(c));
      } else {
        to += c;
      }
  }
}

/// Returns the number of bytes at the start of `text` that need no escape in a JSON string. Nearly
/// all bytes are such, and are copied together.
std::size_t plain_length(std::string_view text) noexcept {
  std::size_t length = 0;
  while (length < text.size()) {
    const unsigned char c = byte_at(text, length);
    if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\') break;
    ++length;
  }
  return length;
}

}  // namespace

std::size_t utf8_length(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const unsigned char first = byte_at(text, 0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                             : first >= 0xE0 && first <= 0xEF ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length == 0 || text.size() < length || !second_fits(first, byte_at(text, 1))) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte_at(text, i) < 0x80 || byte_at(text, i) > 0xBF) return 0;
  }
  return length;
}

void append_json_string(std::string& to, std::string_view text, std::size_t most) {
  const std::size_t start = to.size();
  to += '"';
  while (!text.empty()) {
    const std::size_t used = to.size() - start + kLongestPiece;
    if (used > most) {
      to += "…";
      break;
    }
    if (const std::size_t plain = std::min(plain_length(text), most - used); plain > 0) {
      to += text.substr(0, plain);
      text.remove_prefix(plain);
      continue;
    }
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      fmt::format_to(std::back_inserter(to), "\\\\x{:02x}", byte_at(text, 0));
    } else if (length == 1) {
      append_json_character(to, text.front());
    } else {
      to += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  to += '"';
}

void append_label_value(std::string& to, std::string_view text) {
  to += '"';
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      fmt::format_to(std::back_inserter(to), "\\\\x{:02x}", byte_at(text, 0));
    } else if (text.front() == '"' || text.front() == '\\') {
      to += '\\';
      to += text.front();
    } else if (text.front() == '\n') {
      to += "\\n";
    } else {
      to += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  to += '"';
}

}  // namespace hvd::observe
