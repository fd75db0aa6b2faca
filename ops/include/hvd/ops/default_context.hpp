// Declares the default context, which a collective uses when its options name no other.
#pragma once

#include <hvd/core/context.hpp>

namespace hvd {

/// Returns the default context: that of the process, or, in the body of `threads`
/// (hvd/ops/threads.hpp), that of the calling thread. Throws Errc::not_initialized before `init`
/// (hvd/hvd.hpp).
[[nodiscard]] Context& context();

/// Returns the context of a collective's options, or the default one.
template <class Options>
[[nodiscard]] Context& context_of(const Options& options) {
  return options.context != nullptr ? *options.context : context();
}

}  // namespace hvd
