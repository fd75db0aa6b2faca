// Allreduce over contiguous memory: the two ways to run it, which give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hvd/core/types.hpp>
#include <hvd/ops/transport.hpp>

#include "fusion/buffer.hpp"
#include "ring/plan.hpp"

namespace hvd {

struct Reduction {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int lanes = 1;                         ///< values of `dtype` per element
  std::span<const std::int64_t> bounds;  ///< of the chunks, in elements: one more than ranks
  const std::byte* own = nullptr;        ///< this rank's contribution
  std::byte* result = nullptr;           ///< may be `own`
  bool divide = false;                   ///< a floating-point average: by the number of ranks …
  double postscale = 1.0;                ///< … and then times this

  [[nodiscard]] std::size_t element_size() const noexcept {
    return size_of(dtype) * static_cast<std::size_t>(lanes);
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(bounds.back()) * element_size();
  }
};

/// Reduce-scatter, then all-gather: each rank sends 2(n-1)/n of the bytes. The owner of a chunk
/// divides and scales it, once, before it is gathered.
void ring_allreduce(Transport& transport, const RingPlan& plan, const Reduction& job,
                    Deadline deadline);

/// Every rank gets every contribution and reduces all of it, each chunk in the ring's order: more
/// bytes, fewer turns. For small messages; `scratch` holds ranks · bytes.
void one_shot_allreduce(Transport& transport, const Reduction& job, FusionBuffer& scratch,
                        Deadline deadline);

/// Whether `one_shot_allreduce` is expected to be faster. The same on every rank.
[[nodiscard]] bool prefers_one_shot(std::size_t bytes, int ranks) noexcept;

/// Divides and scales `count` elements at `data`, as the job says.
void finish(const Reduction& job, std::byte* data, std::int64_t count, int ranks);

}  // namespace hvd
