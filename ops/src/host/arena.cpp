#include "host/arena.hpp"

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include <unistd.h>

namespace hvd::detail {

HostArena::HostArena(std::shared_ptr<const HostSegment> segment)
    : segment_(std::move(segment)),
      owner_(::getpid()),
      capacity_((segment_->size() - HostSegment::arena_begin()) / kStretch * kStretch),
      first_(segment_->data() + HostSegment::arena_begin()),
      blocks_(capacity_),
      committed_(capacity_ / kStretch, false),
      given_back_(capacity_ / kStretch, false),
      private_(capacity_ / kStretch, false),
      keep_(capacity_ / 8) {}

void* HostArena::allocate(std::size_t bytes) noexcept {
  if (::getpid() != owner_) return nullptr;
  const std::lock_guard lock(mutex_);
  try {
    const auto block = blocks_.take(bytes);
    if (!block) return nullptr;
    if (commit(*block)) return first_ + block->offset;
    blocks_.give(block->offset);
  } catch (const std::bad_alloc&) {
    // There was no memory for the list of blocks itself.
  }
  return nullptr;
}

void HostArena::deallocate(void* memory) noexcept {
  if (memory == nullptr || !contains(memory, 0)) return;
  // A forked child would punch holes into the pages of its parent.
  if (::getpid() != owner_) return;
  const std::lock_guard lock(mutex_);
  try {
    const auto freed =
        blocks_.give(static_cast<std::size_t>(static_cast<std::byte*>(memory) - first_));
    // The next training step usually allocates what this one frees, so pages are given back only
    // when too many lie idle.
    if (freed && committed_bytes_ - blocks_.used() > keep_) release(*freed);
  } catch (const std::bad_alloc&) {
    // The list has lost the block, so its memory is not handed out again.
  }
}

bool HostArena::commit(const BlockList::Block& block) noexcept {
  const std::size_t last = (block.offset + block.size - 1) / kStretch;
  for (std::size_t stretch = block.offset / kStretch; stretch <= last; ++stretch) {
    if (committed_[stretch]) continue;
    if (!segment_->memory().commit(offset_of(first_) + stretch * kStretch, kStretch)) return false;
    committed_[stretch] = true;
    committed_bytes_ += kStretch;
    // The pages were given back too early: every step that needs so much would fault in new pages.
    if (given_back_[stretch]) keep_ = std::max(keep_, committed_bytes_ + capacity_ / 8);
  }
  return true;
}

void HostArena::release(const BlockList::Block& block) noexcept {
  const std::size_t end = (block.offset + block.size) / kStretch;
  for (std::size_t stretch = (block.offset + kStretch - 1) / kStretch; stretch < end; ++stretch) {
    if (!committed_[stretch] || private_[stretch]) continue;
    segment_->memory().release(offset_of(first_) + stretch * kStretch, kStretch);
    committed_[stretch] = false;
    given_back_[stretch] = true;
    committed_bytes_ -= kStretch;
  }
}

std::string HostArena::make_private(std::vector<BlockList::Block> parts) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<BlockList::Block> ranges;  // of whole pages, ascending and apart
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
  for (const BlockList::Block& part : parts) {
    const std::size_t begin = part.offset / page * page;
    const std::size_t end = (part.offset + part.size + page - 1) / page * page;
    if (ranges.empty() || begin > ranges.back().offset + ranges.back().size) {
      ranges.push_back({begin, end - begin});
    } else {
      BlockList::Block& last = ranges.back();
      last.size = std::max(last.offset + last.size, end) - last.offset;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    for (const BlockList::Block& range : ranges) {
      const std::size_t begin = range.offset - offset_of(first_);
      const std::size_t last = (begin + range.size - 1) / kStretch;
      for (std::size_t stretch = begin / kStretch; stretch <= last; ++stretch) {
        private_[stretch] = true;
      }
    }
  }
  std::string refused;
  for (const BlockList::Block& range : ranges) {
    std::string why = segment_->memory().make_private(range.offset, range.size);
    if (refused.empty()) refused = std::move(why);
  }
  return refused;
}

bool HostArena::contains(const void* memory, std::size_t bytes) const noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(first_);
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  return at >= first && at - first <= capacity_ && bytes <= capacity_ - (at - first);
}

std::size_t HostArena::used() const noexcept {
  const std::lock_guard lock(mutex_);
  return blocks_.used();
}

}  // namespace hvd::detail
