// How tensors pass through the stages of an allreduce over hosts, as data. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/backend.hpp>

namespace hvd {

/// Consecutive elements of one tensor, reduced as if they were a tensor of their own.
struct Segment {
  std::size_t tensor = 0;
  std::int64_t begin = 0;  ///< element
  std::int64_t count = 0;

  friend bool operator==(const Segment&, const Segment&) = default;
};

/// What goes through a stage together.
using Round = std::vector<Segment>;

/// A tensor of more than `most` elements is cut into as few nearly equal segments as possible, by
/// its own count alone. A round takes the next segments as long as they have `most` elements
/// together at most.
[[nodiscard]] std::vector<Round> plan_rounds(std::span<const TensorSlice> tensors,
                                             std::int64_t most);

}  // namespace hvd
