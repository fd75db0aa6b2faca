// What a rank asks the coordinator for.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd {

/// Longest name of an operation.
inline constexpr std::size_t kMaxNameBytes = 1024;

/// The part of an operation that ranks must agree on. Operations match by name; everything else
/// must be equal on every rank, but for the first dimension of an allgather or alltoall, the splits
/// and the device index.
struct Request {
  std::string name;
  OpKind kind = OpKind::allreduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;  ///< allreduce and reducescatter only
  Device device;
  Shape shape;
  int root = 0;                      ///< broadcast only: a global rank
  double prescale = 1.0;             ///< allreduce and reducescatter only: factor on the inputs
  double postscale = 1.0;            ///< likewise, on the result
  std::int32_t process_set = 0;      ///< id; 0 is every rank
  std::string group;                 ///< operations of one group become ready together; empty: none
  std::int32_t group_size = 0;       ///< how many operations have this group
  std::vector<std::int64_t> splits;  ///< alltoall only: rows for each rank of the set
  bool over_contributors = false;    ///< join only: averages divide by the ranks that took part

  friend bool operator==(const Request&, const Request&) = default;
};

/// "This data is ready", on the host or on a CUDA stream.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Blocks until the data is ready, at most until `deadline`, then throws Errc::timeout.
  virtual void wait(Deadline deadline) = 0;
  /// The device's own event where there is one (a cudaEvent_t), so that a stream can wait for it
  /// and no thread has to; else null.
  [[nodiscard]] virtual void* handle() const noexcept { return nullptr; }
};

/// One operation with its memory, as the bindings hand it to `Context::submit`.
struct Submission {
  Request request;
  const void* input = nullptr;  ///< dense, row-major, `request.shape` elements; null when empty
  void* output = nullptr;       ///< as `input` for allreduce and broadcast; may equal it
  /// Allgather, reducescatter and alltoall: called with the shape of the result, returns dense
  /// memory for it, maybe before `ready`. What it throws fails the work; on a device, the job.
  std::function<void*(const Shape&)> allocate;
  /// Alltoall and join, before `finish`: the rows received from each rank; the last rank to join.
  std::function<void(std::span<const std::int64_t>)> report;
  /// After success and before the work is done (copy back to a strided tensor).
  std::function<void()> finish;
  /// Released when the operation is over: what keeps `input` and `output` alive.
  std::shared_ptr<void> keep_alive;
  std::shared_ptr<DeviceEvent> ready;  ///< null: ready now
};

}  // namespace hvd
