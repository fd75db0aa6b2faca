// Turns Arrow's errors into hvd::Error.
#pragma once

#include <string>
#include <utility>

#include <arrow/result.h>
#include <arrow/status.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {

/// Replaces line breaks by spaces.
[[nodiscard]] inline std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

/// Returns the message on one line, without Arrow's own source lines.
[[nodiscard]] inline std::string text_of(const arrow::Status& status) {
  std::string text = status.message();
  if (status.detail() != nullptr) text += fmt::format(" ({})", status.detail()->ToString());
  return one_line(std::move(text));
}

/// Returns Errc::invalid_argument, Errc::unsupported, or Errc::resource for everything else.
[[nodiscard]] inline Errc code_of(const arrow::Status& status) noexcept {
  if (status.IsInvalid() || status.IsTypeError() || status.IsKeyError() || status.IsIndexError()) {
    return Errc::invalid_argument;
  }
  return status.IsNotImplemented() ? Errc::unsupported : Errc::resource;
}

/// Throws an Error "<what>: <why>" unless `status` is OK.
inline void check(const arrow::Status& status, const std::string& what) {
  if (status.ok()) return;
  throw Error(code_of(status), fmt::format("{}: {}", what, text_of(status)));
}

/// Returns the value of a result, or throws as `check` does.
template <class T>
[[nodiscard]] T take(arrow::Result<T> result, const std::string& what) {
  check(result.status(), what);
  return std::move(result).ValueUnsafe();
}

}  // namespace hvd::detail
