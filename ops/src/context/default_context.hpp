// Gives the process its default context and takes it away.
#pragma once

#include <memory>

#include <hvd/core/context.hpp>

namespace hvd::detail {

/// The process must have no default context. No other thread may use it meanwhile, here and below.
void set_default_context(std::unique_ptr<Context> context);
/// Returns null when the process has none.
[[nodiscard]] std::unique_ptr<Context> take_default_context() noexcept;

}  // namespace hvd::detail
