// This rank's part of what a round reduces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/backend.hpp>

#include "hierarchy/lanes.hpp"
#include "hierarchy/rounds.hpp"

namespace hvd {

/// Where the parts of a round's segments lie in a buffer, and the calls of the three stages. What
/// it is made from outlives it.
class RoundSlices {
 public:
  RoundSlices(const Lanes& lanes, const Round& round, DType dtype);

  /// Bytes of the buffer.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }

  /// Of the reducescatter within the host; `absent` is read in place of what is not there.
  [[nodiscard]] std::vector<ScatterSlice> contributions(std::span<const TensorSlice> tensors,
                                                        const std::byte* absent,
                                                        std::byte* buffer) const;
  /// Of the allreduce across hosts, for the n-th lane of this rank.
  [[nodiscard]] std::vector<TensorSlice> lane(std::byte* buffer, int n) const;
  /// Of the allgather within the host; what nobody wants goes to `discarded`.
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
  std::vector<std::size_t> offsets_;               // of each segment's part in the buffer
  std::vector<std::vector<std::int64_t>> counts_;  // of each segment: elements by place
  std::size_t bytes_ = 0;
};

}  // namespace hvd
