// Declares the memory that the ranks of a host share.
#pragma once

#include <cstddef>

namespace hvd {

/// An arena is this rank's part of the memory that the ranks of a host share. Tensors in it are
/// reduced in place: the other ranks of the host read and write them directly, so that nothing is
/// copied. Any thread may call any method. An arena may outlive its context, and is then plain
/// memory of this process.
class Arena {
 public:
  virtual ~Arena() = default;

  /// Returns at least `bytes` bytes at a multiple of 64, with unspecified content, or null when
  /// there is no room.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) noexcept = 0;
  /// Frees `memory`, which came from `allocate` of this arena and has no operation pending, or is
  /// null.
  virtual void deallocate(void* memory) noexcept = 0;
  /// Tells whether all of these bytes lie in the arena.
  [[nodiscard]] virtual bool contains(const void* memory, std::size_t bytes) const noexcept = 0;
  /// Return how many bytes `allocate` can give in all, and how many it has given.
  [[nodiscard]] virtual std::size_t capacity() const noexcept = 0;
  [[nodiscard]] virtual std::size_t used() const noexcept = 0;
};

}  // namespace hvd
