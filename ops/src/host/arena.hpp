// Implements the arena of one rank.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <sys/types.h>

#include <hvd/core/arena.hpp>

#include "host/block_list.hpp"
#include "host/segment.hpp"

namespace hvd::detail {

/// Keeps this rank's segment alive, and no other rank's. Pages are committed when they are first
/// allocated, so that without memory `allocate` returns null and the process is not killed. Freed
/// pages are given back to the system when more than an eighth of the arena lies idle, or more than
/// had to be committed again after it was given back. A forked child does not have this memory:
/// there `allocate` returns null, and `deallocate` does nothing.
class HostArena final : public Arena {
 public:
  explicit HostArena(std::shared_ptr<const HostSegment> segment);

  [[nodiscard]] void* allocate(std::size_t bytes) noexcept override;
  void deallocate(void* memory) noexcept override;
  [[nodiscard]] bool contains(const void* memory, std::size_t bytes) const noexcept override;
  [[nodiscard]] std::size_t capacity() const noexcept override { return capacity_; }
  [[nodiscard]] std::size_t used() const noexcept override;

  /// Returns the offset in the segment of memory that the arena contains.
  [[nodiscard]] std::size_t offset_of(const std::byte* memory) const noexcept {
    return static_cast<std::size_t>(memory - segment_->data());
  }

  /// Makes private copies of the pages of these parts of allocated blocks, which are offsets in the
  /// segment; returns what SealedMemory::make_private does. A page can be made private once. It is
  /// not released before the end of the arena.
  [[nodiscard]] std::string make_private(std::vector<BlockList::Block> parts);

 private:
  /// Pages are committed and released in stretches of this size.
  static constexpr std::size_t kStretch = std::size_t{1} << 20;

  [[nodiscard]] bool commit(const BlockList::Block& block) noexcept;
  void release(const BlockList::Block& block) noexcept;

  std::shared_ptr<const HostSegment> segment_;
  pid_t owner_;
  std::size_t capacity_;
  std::byte* first_;

  mutable std::mutex mutex_;
  BlockList blocks_;
  std::vector<bool> committed_;   ///< by stretch
  std::vector<bool> given_back_;  ///< by stretch: at some time
  std::vector<bool> private_;     ///< by stretch: some page is private, so none is released
  std::size_t committed_bytes_ = 0;
  std::size_t keep_;  ///< this many bytes may lie idle
};

}  // namespace hvd::detail
