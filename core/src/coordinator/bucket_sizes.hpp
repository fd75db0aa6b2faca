// How large buckets may be.
#pragma once

#include <cstddef>

namespace hvd {

struct BucketSizes {
  std::size_t threshold = 0;  ///< bytes of one collective; 0: every tensor alone
  std::size_t edge = 0;       ///< bytes of the first and the last bucket of many; 0: as the others

  friend bool operator==(const BucketSizes&, const BucketSizes&) = default;
};

/// What is used unless something better was measured.
[[nodiscard]] constexpr BucketSizes usual_sizes(std::size_t threshold) noexcept {
  return {threshold, threshold / 16};
}

}  // namespace hvd
