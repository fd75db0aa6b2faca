// A 64-bit digest of values: equal on every machine, for finding differences, not for security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace hvd {

class Digest {
 public:
  void add(std::uint64_t value) noexcept;
  void add(std::string_view text) noexcept;
  /// Elements of `element_size` bytes (1, 2, 4 or 8) in this machine's byte order; taken by value,
  /// so that the order does not matter.
  void add_elements(std::span<const std::byte> bytes, std::size_t element_size) noexcept;

  [[nodiscard]] std::uint64_t value() const noexcept { return state_; }

 private:
  std::uint64_t state_ = 0x9e3779b97f4a7c15;
};

}  // namespace hvd
