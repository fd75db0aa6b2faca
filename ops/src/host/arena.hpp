// The arena of one rank.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <hvd/core/arena.hpp>

#include "host/block_list.hpp"
#include "host/segment.hpp"

namespace hvd {

/// Keeps this rank's segment, and nobody else's. Pages are taken from the system when they are
/// first allocated, so that a machine without memory says no rather than end the process, and given
/// back when much of what was freed lies idle: more than an eighth of the arena, or than what had
/// to be taken again after it was given back.
class HostArena final : public Arena {
 public:
  /// The part of `segment` from `begin` on.
  HostArena(std::shared_ptr<const HostSegment> segment, std::size_t begin);

  [[nodiscard]] void* allocate(std::size_t bytes) noexcept override;
  void deallocate(void* memory) noexcept override;
  [[nodiscard]] bool contains(const void* memory, std::size_t bytes) const noexcept override;
  [[nodiscard]] std::size_t capacity() const noexcept override { return capacity_; }
  [[nodiscard]] std::size_t used() const noexcept override;

  /// Of memory that it contains, from the begin of the segment.
  [[nodiscard]] std::size_t offset_of(const std::byte* memory) const noexcept {
    return static_cast<std::size_t>(memory - segment_->data());
  }

  /// The pages of these parts of allocated blocks, by offset as above, become this process's own:
  /// SealedMemory::make_private. Once for a page. They stay until the arena goes.
  [[nodiscard]] std::string make_private(std::vector<BlockList::Block> parts);

 private:
  /// Pages come and go in these.
  static constexpr std::size_t kStretch = std::size_t{1} << 20;

  [[nodiscard]] bool commit(const BlockList::Block& block) noexcept;
  void release(const BlockList::Block& block) noexcept;

  std::shared_ptr<const HostSegment> segment_;
  std::size_t begin_;
  std::size_t capacity_;
  std::byte* first_;

  mutable std::mutex mutex_;
  BlockList blocks_;
  std::vector<bool> committed_;   ///< by stretch
  std::vector<bool> given_back_;  ///< by stretch: at some time
  std::vector<bool> private_;     ///< by stretch: some of it, so that it stays as it is
  std::size_t committed_bytes_ = 0;
  std::size_t keep_;  ///< this much may lie idle
};

}  // namespace hvd
