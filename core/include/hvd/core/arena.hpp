// Memory that the ranks of a host share.
#pragma once

#include <cstddef>

namespace hvd {

/// This rank's part of it. What lies here is reduced where it lies: the other ranks of the host
/// read and write it directly, so that nothing is copied. Any thread may call any method. It may
/// outlive the context that it came from; then it is plain memory of this process.
class Arena {
 public:
  virtual ~Arena() = default;

  /// At least `bytes` bytes at a multiple of 64; null when there is no room. Contents unspecified.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) noexcept = 0;
  /// `memory` came from `allocate` of this arena, and no operation on it is pending. Null: nothing.
  virtual void deallocate(void* memory) noexcept = 0;
  /// Whether all of these bytes lie in the arena.
  [[nodiscard]] virtual bool contains(const void* memory, std::size_t bytes) const noexcept = 0;
  /// Bytes that `allocate` could ever give, and has given.
  [[nodiscard]] virtual std::size_t capacity() const noexcept = 0;
  [[nodiscard]] virtual std::size_t used() const noexcept = 0;
};

}  // namespace hvd
