// HVD_ARROW_PARTITION: a line "rows path" per file.
#pragma once

#include <string_view>

#include <hvd/core/arrow_partition.hpp>

namespace hvd {

/// Throws Errc::invalid_argument quoting the line that is something else.
[[nodiscard]] ArrowPartition parse_arrow_partition(std::string_view text);

}  // namespace hvd
