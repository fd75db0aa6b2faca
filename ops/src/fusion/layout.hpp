// Tells where the elements of fused tensors lie in the buffer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hvd::detail {

/// Describes the elements [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const noexcept { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Returns the k-th of `parts` nearly equal parts, [count·k/parts, count·(k+1)/parts), without
/// overflow.
[[nodiscard]] Range part_of(std::int64_t count, int k, int parts) noexcept;

/// Lays fused tensors out in chunk-major order: chunk k of the buffer is the k-th part of every
/// tensor, one after the other. The chunk of an element, and with it the order of its sum,
/// therefore depends on its own tensor's count and the number of ranks, and not on the tensors that
/// it is fused with.
class FusionLayout {
 public:
  /// There is one count per tensor, which is not negative, and one chunk per rank.
  FusionLayout(std::vector<std::int64_t> counts, int chunks);

  [[nodiscard]] int chunks() const noexcept { return static_cast<int>(bounds_.size()) - 1; }
  [[nodiscard]] std::int64_t total() const noexcept { return bounds_.back(); }
  /// Returns where each chunk begins in elements, and the total at the end.
  [[nodiscard]] std::span<const std::int64_t> bounds() const noexcept { return bounds_; }

  /// Calls fn(std::size_t tensor, Range of its elements, std::int64_t offset in the buffer) for
  /// each part, by offset.
  template <class Fn>
  void for_each_part(Fn fn) const {
    std::int64_t offset = 0;
    for (int k = 0; k < chunks(); ++k) {
      for (std::size_t tensor = 0; tensor < counts_.size(); ++tensor) {
        const Range part = part_of(counts_[tensor], k, chunks());
        if (part.size() == 0) continue;
        fn(tensor, part, offset);
        offset += part.size();
      }
    }
  }

 private:
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> bounds_;
};

}  // namespace hvd::detail
