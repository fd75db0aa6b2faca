#include "call_counts.hpp"

namespace hvd::test {

std::optional<CallCounts> call_counts() noexcept { return std::nullopt; }

}  // namespace hvd::test
