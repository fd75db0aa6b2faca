// An `Error` of a certain kind, and its text.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/wire.hpp>
#include <hvd/core/types.hpp>

namespace hvd::test {

/// Runs `body`, which must throw an Error with `code`; returns its text.
inline std::string expect_error(Errc code, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error where '" << to_string(code) << "' was expected";
  return "";
}

inline Deadline in(std::chrono::milliseconds delay) { return Clock::now() + delay; }
inline Deadline soon() { return in(std::chrono::seconds(30)); }

inline Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace hvd::test
