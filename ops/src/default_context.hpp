// The default context, for ways to join a job that need more than a `Config`.
#pragma once

#include <functional>
#include <memory>

#include <hvd/core/context.hpp>

namespace hvd {

/// `init(config)` with another way to make the context from the settings it gives.
void init_default_context(const Config& config,
                          const std::function<std::unique_ptr<Context>(const Config&)>& make);

}  // namespace hvd
