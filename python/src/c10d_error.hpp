// Turns errors of hvd into those that torch.distributed's backends throw.
#pragma once

#include <string>

#include <c10/util/Exception.h>

#include <hvd/core/error.hpp>

namespace hvd::python {

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
    C10_THROW_ERROR(DistBackendError, text + error.what());
  }
}

}  // namespace hvd::python
