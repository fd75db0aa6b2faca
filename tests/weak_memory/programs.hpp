// The small programs that use the shared-memory protocols of the host engine.
#pragma once

#include <vector>

#include "explorer.hpp"

namespace hvd::weak {

/// Together they execute every atomic operation of the protocols.
[[nodiscard]] std::vector<Program> protocol_programs();

}  // namespace hvd::weak
