#include "host/block_list.hpp"

#include <algorithm>

namespace hvd::detail {
namespace {

std::size_t round_up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

BlockList::BlockList(std::size_t size) : size_(size) {
  if (size > 0) insert({0, size});
}

void BlockList::insert(Block block) {
  free_.emplace(block.offset, block.size);
  by_size_.emplace(block.size, block.offset);
}

BlockList::BySize::iterator BlockList::find(std::size_t size, std::size_t align) {
  const auto fits = by_size_.lower_bound({size, 0});
  if (fits == by_size_.end()) return fits;
  if (round_up(fits->second, align) - fits->second + size <= fits->first) return fits;
  return by_size_.lower_bound({size + align - kUnit, 0});  // it fits whatever its alignment
}

std::optional<BlockList::Block> BlockList::take(std::size_t size) {
  if (size > size_) return std::nullopt;
  const std::size_t align = size >= kLarge ? kPage : kUnit;
  size = round_up(std::max<std::size_t>(size, 1), align);
  const auto found = find(size, align);
  if (found == by_size_.end()) return std::nullopt;
  const Block whole{found->second, found->first};
  const Block block{round_up(whole.offset, align), size};

  taken_.emplace(block.offset, block.size);  // may throw, so nothing is changed before
  by_size_.erase(found);
  free_.erase(whole.offset);
  if (block.offset > whole.offset) insert({whole.offset, block.offset - whole.offset});
  const std::size_t end = block.offset + block.size;
  if (end < whole.offset + whole.size) insert({end, whole.offset + whole.size - end});
  used_ += block.size;
  return block;
}

std::optional<BlockList::Block> BlockList::give(std::size_t offset) {
  const auto found = taken_.find(offset);
  if (found == taken_.end()) return std::nullopt;
  Block block{offset, found->second};
  taken_.erase(found);
  used_ -= block.size;

  auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      block = {before->first, before->second + block.size};
      by_size_.erase({before->second, before->first});
      free_.erase(before);
    }
  }
  if (after != free_.end() && block.offset + block.size == after->first) {
    block.size += after->second;
    by_size_.erase({after->second, after->first});
    free_.erase(after);
  }
  insert(block);
  return block;
}

}  // namespace hvd::detail
