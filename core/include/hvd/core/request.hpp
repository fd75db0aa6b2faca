// What a rank asks the coordinator for.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <hvd/core/types.hpp>

namespace hvd {

/// Longest name of an operation.
inline constexpr std::size_t kMaxNameBytes = 1024;

/// The part of an operation that ranks must agree on. Operations match by name; everything else
/// must be equal on every rank, but for the first dimension of an allgather and the device index.
struct Request {
  std::string name;
  OpKind kind = OpKind::allreduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;  ///< allreduce only
  Device device;
  Shape shape;
  int root = 0;            ///< broadcast only: a global rank
  double prescale = 1.0;   ///< allreduce only: factor on the inputs
  double postscale = 1.0;  ///< allreduce only: factor on the result

  friend bool operator==(const Request&, const Request&) = default;
};

/// "This data is ready", on the host or on a CUDA stream.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Executor thread. Returns once the input may be read by the backend's own stream; a host
  /// event blocks, at most until `deadline`, then throws Errc::timeout.
  virtual void wait(Deadline deadline) = 0;
};

/// One operation with its memory, as the bindings hand it to `Context::submit`.
struct Submission {
  Request request;
  const void* input = nullptr;  ///< dense, row-major, `request.shape` elements; null when empty
  void* output = nullptr;       ///< as `input` for allreduce and broadcast; may equal it
  /// Allgather: called on the executor thread with the gathered shape, returns dense memory for it.
  /// An exception it throws fails this operation on this rank.
  std::function<void*(const Shape&)> allocate;
  /// Executor thread, after success and before the work is done (copy back to a strided tensor).
  std::function<void()> finish;
  /// Released when the operation is over: what keeps `input` and `output` alive.
  std::shared_ptr<void> keep_alive;
  std::shared_ptr<DeviceEvent> ready;  ///< null: ready now
};

}  // namespace hvd
