// Manages the taken and free parts of a range.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace hvd::detail {

/// Finds the best fit among free blocks, which are joined with their neighbours. It knows offsets
/// only and touches no memory. One thread at a time may call it.
class BlockList {
 public:
  static constexpr std::size_t kUnit = 64;
  static constexpr std::size_t kPage = 4096;
  /// Blocks from here on begin at pages.
  static constexpr std::size_t kLarge = std::size_t{64} << 10;

  struct Block {
    std::size_t offset = 0;
    std::size_t size = 0;
  };

  /// Manages the offsets from 0 to `size`, a multiple of `kPage`.
  explicit BlockList(std::size_t size);

  /// Takes at least `size` bytes (0 counts as 1) at a multiple of `kUnit`; returns nothing when no
  /// free block is large enough.
  [[nodiscard]] std::optional<Block> take(std::size_t size);
  /// Frees the block at `offset`, which `take` returned. Returns the whole free block that it is
  /// now part of, or nothing when it was not taken.
  std::optional<Block> give(std::size_t offset);

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t used() const noexcept { return used_; }

 private:
  using BySize = std::set<std::pair<std::size_t, std::size_t>>;

  void insert(Block block);
  [[nodiscard]] BySize::iterator find(std::size_t size, std::size_t align);

  std::size_t size_;
  std::size_t used_ = 0;
  std::map<std::size_t, std::size_t> free_;  ///< size by offset
  BySize by_size_;                           ///< the same, by size
  std::unordered_map<std::size_t, std::size_t> taken_;
};

}  // namespace hvd::detail
