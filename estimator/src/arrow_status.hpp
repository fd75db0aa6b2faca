// Arrow's errors as the library's.
#pragma once

#include <string>
#include <utility>

#include <arrow/result.h>
#include <arrow/status.h>

#include <hvd/core/error.hpp>

namespace hvd {

/// What went wrong, on one line, without Arrow's own source lines.
[[nodiscard]] std::string text_of(const arrow::Status& status);

/// An argument that Arrow refuses, something it cannot do, or else the system's refusal.
[[nodiscard]] Errc code_of(const arrow::Status& status) noexcept;

/// Throws an Error "<what>: <why>" unless `status` is OK.
void check(const arrow::Status& status, const std::string& what);

template <class T>
[[nodiscard]] T take(arrow::Result<T> result, const std::string& what) {
  check(result.status(), what);
  return std::move(result).ValueUnsafe();
}

}  // namespace hvd
