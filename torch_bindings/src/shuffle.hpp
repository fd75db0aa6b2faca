// An order that depends on seed and epoch alone, and what comes next in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hvd {

/// The same on every machine and standard library.
void shuffle(std::vector<std::size_t>& values, std::uint64_t seed, std::size_t epoch);

/// Up to `count` values from `position` on, which moves behind them; nothing at the end.
[[nodiscard]] std::optional<std::vector<std::size_t>> take_next(
    const std::vector<std::size_t>& order, std::size_t& position, std::size_t count);

}  // namespace hvd
