// Checks which error a call throws.
#pragma once

#include <gtest/gtest.h>

#include <hvd/core/error.hpp>

namespace hvd::test {

/// Runs `call`, which must throw an Error, and returns it; fails the test when it succeeds.
template <class Call>
[[nodiscard]] Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "succeeded";
  return Error(Errc::internal, "succeeded");
}

}  // namespace hvd::test
