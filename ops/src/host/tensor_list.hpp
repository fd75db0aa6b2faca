// Describes the tensors of one call as a single row of elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fusion/layout.hpp"

namespace hvd::detail {

/// Holds only the tensors' numbers of elements, and not where the tensors lie.
class TensorList {
 public:
  void clear() noexcept { ends_.clear(); }
  void add(std::int64_t count) { ends_.push_back(total() + count); }

  [[nodiscard]] std::size_t size() const noexcept { return ends_.size(); }
  [[nodiscard]] std::int64_t total() const noexcept { return ends_.empty() ? 0 : ends_.back(); }

  /// Calls fn(std::size_t tensor, Range of its elements, std::int64_t position in the row) for the
  /// part of each tensor that lies in `range` of the row.
  template <class Fn>
  void for_each_piece(Range range, Fn fn) const {
    auto end = std::upper_bound(ends_.begin(), ends_.end(), range.begin);
    for (; range.size() > 0; ++end) {
      const auto tensor = static_cast<std::size_t>(end - ends_.begin());
      const std::int64_t first = tensor == 0 ? 0 : ends_[tensor - 1];
      const std::int64_t stop = std::min(range.end, *end);
      if (stop == range.begin) continue;  // an empty tensor
      fn(tensor, Range{range.begin - first, stop - first}, range.begin);
      range.begin = stop;
    }
  }

  /// Returns where the k-th of `parts` nearly equal parts of the row begins: at a multiple of
  /// `unit` elements in its tensor, so that parts share no cache line.
  [[nodiscard]] std::int64_t boundary(int k, int parts, std::int64_t unit) const {
    if (k <= 0) return 0;
    if (k >= parts) return total();
    const std::int64_t at = part_of(total(), k, parts).begin;
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), at);
    const std::int64_t first = end == ends_.begin() ? 0 : *(end - 1);
    return first + (at - first) / unit * unit;
  }

 private:
  std::vector<std::int64_t> ends_;
};

}  // namespace hvd::detail
