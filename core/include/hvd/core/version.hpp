#pragma once

#include <string_view>

namespace hvd {

/// Returns the version of the library, as in "0.1.0". Ranks of one job must agree on it.
[[nodiscard]] std::string_view version() noexcept;

}  // namespace hvd
