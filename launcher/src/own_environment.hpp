// The environment hvdrun itself was started with: the one place of the launcher that reads it.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

/// "NAME=value" each.
[[nodiscard]] std::vector<std::string> own_environment();

}  // namespace hvd::launcher
