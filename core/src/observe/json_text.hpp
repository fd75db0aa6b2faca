// Turns any bytes into text that JSON parsers, viewers and scrapers accept.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hvd::observe {

/// Returns the length of the well-formed UTF-8 sequence (Unicode 15, table 3-7) with which `text`
/// begins, or 0.
[[nodiscard]] std::size_t utf8_length(std::string_view text) noexcept;

/// Appends `text` as a JSON string with its quotes, cut with "…" to about `most` bytes. A byte
/// that is not UTF-8 shows as the four characters \xHH.
void append_json_string(std::string& to, std::string_view text,
                        std::size_t most = std::string::npos);

/// Appends `text` as a Prometheus label value with its quotes, with the same form for bytes that
/// are not UTF-8.
void append_label_value(std::string& to, std::string_view text);

}  // namespace hvd::observe
