// Turns errors of hvd into those that torch.distributed's backends throw.
#pragma once

#include <string>

#include <c10/util/Exception.h>

#include <hvd/core/error.hpp>

namespace hvd::python {

/// Throws what the backends of torch.distributed throw. Unlike torch's macro it puts no path of
/// this machine into the library.
[[noreturn]] inline void fail(const std::string& text) {
  throw c10::DistBackendError(c10::SourceLocation{"hvd", "hvd", 0}, text);
}

/// Throws what torch throws for wrong arguments.
inline void check_arguments(bool hold, const char* text) {
  if (!hold) throw c10::Error(c10::SourceLocation{"hvd", "hvd", 0}, text);
}

/// Returns what `call` returns. An `Error` that it throws becomes a DistBackendError, which Python
/// sees as torch.distributed.DistBackendError.
template <class Call>
auto with_c10d_errors(const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    // Programs look for the word between blanks, which is in the texts of other backends.
    const std::string text =
        error.code() == Errc::timeout ? "the timeout of the group has passed: " : "";
    fail(text + error.what());
  }
}

}  // namespace hvd::python
