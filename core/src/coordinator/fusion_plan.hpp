// Which ready tensors share one collective. A pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include <hvd/core/request.hpp>

namespace hvd {

/// An operation that every rank has submitted alike.
struct ReadyTensor {
  Request request;
  std::vector<std::int64_t> first_dimensions;  ///< allgather: rows per rank, else empty
};

/// Bytes that an operation moves: those of its shape; an allgather's, of all ranks.
[[nodiscard]] std::size_t bytes_of(const ReadyTensor& tensor) noexcept;

/// Removes from `ready` the oldest tensor and those behind it that may run with it, in order:
/// same kind, dtype, device kind, reduce op, scales and root, together at most `threshold` bytes. A
/// tensor that does not fit is passed over. Barriers run alone. `ready` is not empty.
[[nodiscard]] std::vector<ReadyTensor> take_fused(std::deque<ReadyTensor>& ready,
                                                  std::size_t threshold);

}  // namespace hvd
