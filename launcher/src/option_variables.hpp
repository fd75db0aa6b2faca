// hvdrun's options as variables.
#pragma once

#include "options.hpp"
#include "rank_environment.hpp"

namespace hvd::launcher {

/// Pure. What hvdrun's own options mean to every rank, however it is started. -x wins over it.
[[nodiscard]] Variables option_variables(const Options& options);

}  // namespace hvd::launcher
