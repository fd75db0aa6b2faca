// Computes the names by which ranks notice that they are at different operations.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <hvd/core/internal/splitmix64.hpp>
#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Returns a hash of everything in an operation, or in a turn of it, that must be equal on all
/// ranks.
[[nodiscard]] inline std::uint64_t name_of(OpKind kind,
                                           std::initializer_list<std::uint64_t> what) noexcept {
  std::uint64_t name = static_cast<std::uint64_t>(kind);
  for (const std::uint64_t value : what) {
    name = (name ^ value) * kGoldenRatio64;
    name ^= name >> 32;
  }
  return name;
}

}  // namespace hvd::detail
