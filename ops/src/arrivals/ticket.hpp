// What every way of meeting checks of its arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hvd {

/// Where `rank` stands among `members`. Throws Errc::invalid_argument unless they are ascending
/// ranks of a job of `size` and `rank` is among them.
[[nodiscard]] std::size_t position_in(std::span<const int> members, int rank, int size);
/// Throws Errc::invalid_argument unless `ticket` comes after `last`, and after 0.
void check_order(std::uint64_t last, std::uint64_t ticket);

}  // namespace hvd
