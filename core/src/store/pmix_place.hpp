// This process's place as its PMIx server knows it.
#pragma once

#include <optional>

#include "config_parse.hpp"

namespace hvd {

/// Connects to the server of the launcher, once per process. Nothing when this process or this
/// build has none. May block for as long as the server takes to answer.
[[nodiscard]] std::optional<PmixPlace> ask_pmix_place();

}  // namespace hvd
