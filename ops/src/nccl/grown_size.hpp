// How much memory a buffer takes that has to hold more than it does.
#pragma once

#include <algorithm>
#include <cstddef>

namespace hvd {

/// In bytes: at least `size`, whole MiB, and from 8 MiB on at most a quarter more. From one to the
/// next it grows by a seventh or more, so that sizes that creep up end in few of them: each costs a
/// wait for the device, a mapping and, with NCCL, a registration. It depends on `size` alone, so
/// that ranks that need as much have as much.
[[nodiscard]] constexpr std::size_t grown_size(std::size_t size) noexcept {
  constexpr std::size_t kLeast = std::size_t{1} << 20;
  std::size_t step = kLeast;
  while (size / 8 >= step) step *= 2;
  return std::max(kLeast, (size + step - 1) / step * step);
}

}  // namespace hvd
