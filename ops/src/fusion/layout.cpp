#include "fusion/layout.hpp"

#include <utility>

namespace hvd::detail {
namespace {

/// Returns floor(count·k/parts) for k <= parts. Only the remainder is multiplied by k before
/// dividing, which avoids overflow.
std::int64_t boundary(std::int64_t count, int k, int parts) noexcept {
  return count / parts * k + count % parts * k / parts;
}

}  // namespace

Range part_of(std::int64_t count, int k, int parts) noexcept {
  return {boundary(count, k, parts), boundary(count, k + 1, parts)};
}

FusionLayout::FusionLayout(std::vector<std::int64_t> counts, int chunks)
    : counts_(std::move(counts)), bounds_(static_cast<std::size_t>(chunks) + 1, 0) {
  for (int k = 0; k < chunks; ++k) {
    std::int64_t size = 0;
    for (const std::int64_t count : counts_) size += part_of(count, k, chunks).size();
    bounds_[static_cast<std::size_t>(k) + 1] = bounds_[static_cast<std::size_t>(k)] + size;
  }
}

}  // namespace hvd::detail
