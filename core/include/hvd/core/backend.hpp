// What the executor calls. Implementations live in ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <hvd/core/error.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// One tensor of a fused allreduce or broadcast. `input` may equal `output`; otherwise they do not
/// overlap and `input` is left as it was. Null pointers when `count` is 0.
struct TensorSlice {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t count = 0;  ///< elements
};

/// One tensor of a fused allgather.
struct GatherSlice {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;           ///< rank 0's elements, then rank 1's, …
  std::span<const std::int64_t> counts;  ///< elements contributed by each rank
};

/// output = postscale · op over ranks of (prescale · input). Integers are scaled in double and
/// truncated, f16 and bf16 in float. Results are bit-identical on all ranks and do not depend on
/// which tensors were fused.
struct AllreduceCall {
  std::span<const TensorSlice> tensors;
  Device device;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
};

struct AllgatherCall {
  std::span<const GatherSlice> tensors;
  Device device;
  DType dtype = DType::f32;
};

struct BroadcastCall {
  std::span<const TensorSlice> tensors;
  Device device;
  DType dtype = DType::f32;
  int root = 0;
};

/// Moves and reduces fused buffers among all ranks of a context. Every rank makes the same calls in
/// the same order. All calls but `abort` come from one thread at a time (the executor), may block,
/// at most until `deadline`, and throw `Error` (peer_lost with the peer's rank, timeout, aborted);
/// after such an error the backend is unusable.
class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual bool supports(OpKind kind, Device device, DType dtype,
                                      ReduceOp op) const noexcept = 0;
  virtual void allreduce(const AllreduceCall& call, Deadline deadline) = 0;
  virtual void allgather(const AllgatherCall& call, Deadline deadline) = 0;
  virtual void broadcast(const BroadcastCall& call, Deadline deadline) = 0;
  virtual void barrier(Deadline deadline) = 0;
  /// Any thread, at any time, also while a call runs: that call and every later one throw
  /// Errc::aborted soon. Does not block.
  virtual void abort() noexcept = 0;
};

}  // namespace hvd
