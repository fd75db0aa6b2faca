// Declares the interface through which the executor calls a backend. Implementations are in ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <hvd/core/error.hpp>
#include <hvd/core/request.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// Returns the size of `count` elements.
[[nodiscard]] inline std::size_t bytes_of(std::int64_t count, DType dtype) noexcept {
  return static_cast<std::size_t>(count) * size_of(dtype);
}

/// Tells whether values of this type can be reduced by this operation. Booleans have no average;
/// complex numbers have no order, and their product is not that of their parts.
[[nodiscard]] constexpr bool can_reduce(DType dtype, ReduceOp op) noexcept {
  if (is_complex(dtype)) return op == ReduceOp::average || op == ReduceOp::sum;
  return dtype != DType::boolean || op != ReduceOp::average;
}

/// Describes one tensor of a fused allreduce or broadcast. `input` may equal `output`; otherwise
/// they do not overlap and `input` is left as it was. Both are null when `count` is 0. In an
/// allreduce a null `input` with elements contributes the identity element of the operation,
/// whatever the scales, and a null `output` discards the result. A rank that has joined takes part
/// in this way.
struct TensorSlice {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::int64_t count = 0;  ///< elements
};

/// Describes one tensor of a fused reducescatter. `input` is left as it was and does not overlap
/// `output`.
struct ScatterSlice {
  const std::byte* input = nullptr;      ///< rank 0's part, then rank 1's, …
  std::byte* output = nullptr;           ///< this rank's part of the result
  std::span<const std::int64_t> counts;  ///< elements of each rank's part
};

/// Describes one tensor of a fused allgather. The input may be this rank's own place in the output.
struct GatherSlice {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;           ///< rank 0's elements, then rank 1's, …
  std::span<const std::int64_t> counts;  ///< elements contributed by each rank
};

/// A backend reports to it what it does inside a call, on the thread of the call.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  virtual void copied_in(Clock::time_point begin, Clock::time_point end) = 0;
  virtual void copied_out(Clock::time_point begin, Clock::time_point end) = 0;
};

/// Computes output = postscale · op over ranks of (prescale · input). Integers are scaled in double
/// and truncated, f16 and bf16 in float. Results are bit-identical on all ranks and do not depend
/// on which tensors were fused.
struct AllreduceCall {
  std::span<const TensorSlice> tensors;
  Device device;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  int contributors = 0;              ///< what `average` divides by; 0: the number of ranks
  CallObserver* observer = nullptr;  ///< notified of copies to and from fusion memory; may be null
  bool f32_memory = false;           ///< as in `Request`
};

/// Computes the same as AllreduceCall, but each rank gets only its part of the result.
struct ReducescatterCall {
  std::span<const ScatterSlice> tensors;
  Device device;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  int contributors = 0;  ///< what `average` divides by; 0: the number of ranks
};

/// `input` holds the elements for rank 0, then those for rank 1, …, and `output` takes those
/// received in the same order. They do not overlap. Rank a sends to b as many elements as b expects
/// from a. A pointer is null when there is nothing to send or receive.
struct AlltoallCall {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::span<const std::int64_t> send_counts;     ///< elements, by rank
  std::span<const std::int64_t> receive_counts;  ///< elements, by rank
  Device device;
  DType dtype = DType::f32;
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

/// Represents a collective that continues on its device after the backend's call has returned. The
/// backend outlives it.
class AsyncCollective {
 public:
  virtual ~AsyncCollective() = default;
  /// Returns true when the results are in place and the backend no longer uses the caller's memory.
  /// Does not wait. Throws what the call would have thrown, also when its deadline has passed; then
  /// all asynchronous collectives of the backend are over, and the backend is unusable. One thread
  /// at a time calls this, also while another one calls the backend.
  [[nodiscard]] virtual bool try_complete() = 0;
  /// Returns the device's own event (a cudaEvent_t), which occurs when the results are in place and
  /// also, after a failure, when the device has stopped writing to them. Returns null where there
  /// is none: then only the host can wait.
  [[nodiscard]] virtual std::shared_ptr<void> end() const { return nullptr; }
};

/// Moves and reduces fused buffers among the ranks of a group, all of a context or a subset. Every
/// rank makes the same calls in the same order. All calls but `abort` come from one thread at a
/// time (not always the same one), may block, at most until `deadline`, and throw `Error`
/// (peer_lost with the peer's rank in the context, timeout, aborted); after such an error the
/// backend is unusable. Ranks and roots in calls are those of the group. The dtype of a call is
/// never complex: the executor passes complex tensors as twice as many reals.
class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual bool supports(OpKind kind, Device device, DType dtype,
                                      ReduceOp op) const noexcept = 0;
  /// The executor calls it before a call whose input is ready only when `ready` has occurred. This
  /// version blocks until then; a backend with a stream of its own on the device lets the stream
  /// wait instead.
  virtual void after(DeviceEvent& ready, Deadline deadline) { ready.wait(deadline); }
  /// The executor calls it before the ready fence of an allreduce, which may still be cancelled.
  /// The backend may prepare a message that the fence with this `sequence` number, which is not 0,
  /// carries to the other ranks, so that they need not wait for it after the fence. The next call
  /// is that allreduce, `retract` or `abandon`.
  virtual void announce(const AllreduceCall& call, std::uint64_t sequence) {
    static_cast<void>(call);
    static_cast<void>(sequence);
  }
  /// Reports that the fence was cancelled, so no rank makes the announced call. Does nothing when
  /// nothing was announced.
  virtual void retract() noexcept {}
  /// Reports that the job has failed, so the announced call is not made, although other ranks may
  /// still act on the announcement. Returns when they can no longer write to this rank's memory;
  /// may block for as long as it takes to copy the announced tensors. The backend is unusable
  /// afterwards. Does nothing when nothing was announced.
  virtual void abandon() noexcept {}
  /// Tells whether the next call first connects the ranks. All queued work must be complete then.
  [[nodiscard]] virtual bool starts() const noexcept { return false; }
  /// Allows the next call to return when all of its work is queued on a device, behind what was
  /// queued before. `take_async` then returns the collective that is still running.
  virtual void allow_async() noexcept {}
  /// Returns null when the last call was complete when it returned.
  [[nodiscard]] virtual std::unique_ptr<AsyncCollective> take_async() noexcept { return nullptr; }
  virtual void allreduce(const AllreduceCall& call, Deadline deadline) = 0;
  virtual void allgather(const AllgatherCall& call, Deadline deadline) = 0;
  virtual void broadcast(const BroadcastCall& call, Deadline deadline) = 0;
  virtual void reducescatter(const ReducescatterCall& call, Deadline deadline) = 0;
  virtual void alltoall(const AlltoallCall& call, Deadline deadline) = 0;
  virtual void barrier(Deadline deadline) = 0;
  /// Returns a backend for some of this one's ranks, which are ascending and include this rank.
  /// Collective among these. The new backend may share the connections of this one: all ranks then
  /// make the calls to both, and destroy the new one, in the same order; an error or `abort` of one
  /// ends both; and the new one does not outlive this one.
  [[nodiscard]] virtual std::unique_ptr<Backend> subset(std::span<const int> ranks,
                                                        Deadline deadline) = 0;
  /// Makes a running call and every later one throw Errc::aborted soon. Any thread may call it at
  /// any time. It does not block, copies nothing and maps nothing, because the thread that calls it
  /// also sends the heartbeats.
  virtual void abort() noexcept = 0;
};

}  // namespace hvd
