// Computes the names by which ranks notice that they are at different operations.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Returns a hash of everything in an operation, or in a turn of it, that must be equal on all
/// ranks.
[[nodiscard]] inline std::uint64_t name_of(OpKind kind,
                                           std::initializer_list<std::uint64_t> what) noexcept {
  std::uint64_t name = static_cast<std::uint64_t>(kind);
  for (const std::uint64_t value : what) {
    name = (name ^ value) * 0x9E37'79B9'7F4A'7C15U;  // the golden ratio's bits, as in SplitMix64
    name ^= name >> 32;
  }
  return name;
}

}  // namespace hvd::detail
