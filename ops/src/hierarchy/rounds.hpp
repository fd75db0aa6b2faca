// Plans how tensors pass through the three stages of an allreduce over hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/internal/backend.hpp>

#include "hierarchy/lanes.hpp"

namespace hvd::detail {

/// Describes consecutive elements of one tensor, which are reduced as if they were a whole tensor.
struct Segment {
  std::size_t tensor = 0;
  std::int64_t begin = 0;  ///< index of the first element
  std::int64_t count = 0;

  friend bool operator==(const Segment&, const Segment&) = default;
};

/// Holds the segments that go through a stage together.
using Round = std::vector<Segment>;

/// Cuts a tensor of more than `most` elements into as few nearly equal segments as possible; the
/// cut depends on the tensor's own count alone. A round takes the next segments as long as they
/// have at most `most` elements together.
[[nodiscard]] std::vector<Round> plan_rounds(std::span<const TensorSlice> tensors,
                                             std::int64_t most);

/// Describes this rank's parts of a round: where they lie in a buffer, and the calls of the three
/// stages. The arguments of the constructor outlive the object.
class RoundSlices {
 public:
  RoundSlices(const Lanes& lanes, const Round& round, DType dtype);

  /// Returns the size of the buffer in bytes.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

  /// Returns the slices of the reducescatter within the host. `absent` replaces inputs that are
  /// null.
  [[nodiscard]] std::vector<ScatterSlice> contributions(std::span<const TensorSlice> tensors,
                                                        const std::byte* absent,
                                                        std::byte* buffer) const;
  /// Returns the slices of the allreduce across hosts for the n-th lane of this rank.
  [[nodiscard]] std::vector<TensorSlice> lane(std::byte* buffer, int n) const;
  /// Returns the slices of the allgather within the host. `discarded` replaces outputs that are
  /// null.
  [[nodiscard]] std::vector<GatherSlice> results(std::span<const TensorSlice> tensors,
                                                 const std::byte* buffer,
                                                 std::byte* discarded) const;

 private:
  [[nodiscard]] std::size_t bytes(std::int64_t elements) const noexcept {
    return static_cast<std::size_t>(elements) * value_;
  }

  const Lanes& lanes_;
  const Round& round_;
  std::size_t value_;
  std::vector<std::size_t> offsets_;               // in the buffer, by segment
  std::vector<std::vector<std::int64_t>> counts_;  // by segment: elements by local rank
  std::size_t bytes_ = 0;
};

}  // namespace hvd::detail
