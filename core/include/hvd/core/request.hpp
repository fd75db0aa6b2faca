// Declares the operations that a rank submits to the coordinator.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd {

/// The longest name of an operation.
inline constexpr std::size_t kMaxNameBytes = 1024;

/// Holds the part of an operation that ranks must agree on. Operations match by name; everything
/// else must be equal on every rank, but for the first dimension of an allgather or alltoall, the
/// splits and the device index.
struct Request {
  std::string name;
  OpKind kind = OpKind::allreduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;  ///< allreduce and reducescatter only
  Device device;
  Shape shape;
  int root = 0;                      ///< broadcast only: a global rank
  double prescale = 1.0;             ///< allreduce and reducescatter only: factor on the inputs
  double postscale = 1.0;            ///< allreduce and reducescatter only: factor on the result
  std::int32_t process_set = 0;      ///< id; 0 is every rank
  std::string group;                 ///< ready together; empty: none; only `submit_group` sets it
  std::int32_t group_size = 0;       ///< how many operations have this group; as `group`
  std::vector<std::int64_t> splits;  ///< alltoall only: rows for each rank of the set
  bool over_contributors = false;    ///< join only: averages divide by the ranks that took part
  /// Allreduce of f16 or bf16 on GPUs only: the memory holds f32, which is converted on the way in
  /// and out.
  bool f32_memory = false;

  friend bool operator==(const Request&, const Request&) = default;
};

/// Tells when data is ready, on the host or on a CUDA stream.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Blocks until the data is ready, at most until `deadline`, then throws Errc::timeout.
  virtual void wait(Deadline deadline) = 0;
  /// Returns the device's own event (a cudaEvent_t), so that a stream can wait for it instead of a
  /// thread, or null where there is none.
  [[nodiscard]] virtual void* handle() const noexcept { return nullptr; }
};

/// Holds one operation with its memory, the argument of `Context::submit`.
struct Submission {
  Request request;
  const void* input = nullptr;  ///< dense, row-major, `request.shape` elements; null when empty
  void* output = nullptr;       ///< as `input` for allreduce and broadcast; may equal it
  /// Is called for allgather, reducescatter and alltoall with the shape of the result, maybe before
  /// `ready`, and returns dense memory for it. An exception fails the work, or the job if the
  /// operation is on a device.
  std::function<void*(const Shape&)> allocate;
  /// Is called for alltoall and join before `finish`, with the rows received from each rank or with
  /// the last rank to join.
  std::function<void(std::span<const std::int64_t>)> report;
  /// Is called after success and before the work is done, as to copy back to a strided tensor. The
  /// engine then waits for `ready`, which it may have recorded anew.
  std::function<void()> finish;
  /// Keeps `input` and `output` alive, and is released when the operation has ended.
  std::shared_ptr<void> keep_alive;
  std::shared_ptr<DeviceEvent> ready;  ///< null when the data is ready now, as on the CPU
};

}  // namespace hvd
