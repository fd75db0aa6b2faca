// Computes addresses in memory that may be absent.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::detail {

/// Returns the address `bytes` after `data`. Null remains null.
template <class Byte>
[[nodiscard]] Byte* moved(Byte* data, std::size_t bytes) noexcept {
  return data == nullptr ? nullptr : data + bytes;
}

/// Returns the address of an element of `size` bytes. Null remains null.
template <class Byte>
[[nodiscard]] Byte* element(Byte* data, std::int64_t index, std::size_t size) noexcept {
  return moved(data, static_cast<std::size_t>(index) * size);
}

}  // namespace hvd::detail
