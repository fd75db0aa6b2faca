// Wraps CUDA's handles and errors as types.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include <hvd/core/types.hpp>
#include <hvd/ops/internal/capture.hpp>

namespace hvd::detail {

/// Throws Errc::resource when the device is out of memory, else Errc::internal, with CUDA's text.
/// `what` names the call.
void check(cudaError_t result, std::string_view what);

/// Returns the error of a kernel that has failed on the current device, after which the device is
/// of no use, else cudaSuccess. Clears the thread's last error.
[[nodiscard]] cudaError_t lasting_error() noexcept;

/// Returns the result of a query: false for cudaErrorNotReady. CUDA keeps that as the thread's last
/// error too, which unrelated code would find later, so it is cleared. Throws as `check` does.
[[nodiscard]] bool is_ready(cudaError_t result, std::string_view what);

/// Tells whether this process has a context on `device`, which occupies memory there. Returns true
/// where the driver cannot be asked. Any thread may call it.
[[nodiscard]] bool has_primary_context(int device) noexcept;

/// Returns the PCI bus id of a device, the same in all processes of a host.
[[nodiscard]] std::string bus_id(int device);

/// Destroys something whose destructor waits for `device`, on which another stream may stand still.
/// Waits for that a second at most, and then leaves it to a thread for which the process does not
/// wait.
void destroy_in_background(std::shared_ptr<void> owned, int device) noexcept;

/// Makes a device the current one of this thread during its life. Afterwards the previous device is
/// current again, unless this process does not use it: a thread that has chosen none has device 0,
/// and making that current would, from CUDA 12 on, allocate some hundred MB there for an unused
/// context. Such a thread keeps `device`. Other threads may capture graphs meanwhile.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : device_(device) {
    check(cudaGetDevice(&previous_), "cudaGetDevice");
    if (previous_ != device_) check(cudaSetDevice(device_), "cudaSetDevice");
  }
  ~DeviceGuard() {
    if (previous_ == device_ || !has_primary_context(previous_)) return;
    static_cast<void>(cudaSetDevice(previous_));
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  CaptureModeGuard capture_mode_;
  int device_;
  int previous_ = 0;
};

/// Owns a CUDA stream of the current device.
class CudaStream {
 public:
  /// The stream is non-blocking: it and the default stream do not wait for each other. It has the
  /// highest priority, since a whole job waits for its work.
  CudaStream() {
    int least = 0;
    int greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
          "cudaStreamCreateWithPriority");
  }
  ~CudaStream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }
  /// Returns whether everything that was queued so far has run. Throws the error of a kernel.
  [[nodiscard]] bool done() const { return is_ready(cudaStreamQuery(stream_), "cudaStreamQuery"); }
  /// Waits until `done`, until a kernel has failed, or until `deadline`.
  void drain(Deadline deadline) const noexcept;

 private:
  cudaStream_t stream_ = nullptr;
};

/// Owns a CUDA event of the current device, which marks a place in a stream.
class CudaEvent {
 public:
  CudaEvent() {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~CudaEvent() { static_cast<void>(cudaEventDestroy(event_)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  [[nodiscard]] cudaEvent_t get() const noexcept { return event_; }
  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// Returns true once everything before the last `record` has run. Throws the error of a kernel.
  [[nodiscard]] bool done() const { return is_ready(cudaEventQuery(event_), "cudaEventQuery"); }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Returns the size of a buffer that has to hold `size` bytes: whole MiB, and from 8 MiB on at most
/// a quarter more than `size`. From one such size to the next it grows by a seventh or more, so
/// that slowly growing needs cause few allocations: each costs a wait for the device, a mapping
/// and, with NCCL, a registration. It depends on `size` alone, so that ranks with equal needs have
/// equal buffers.
[[nodiscard]] constexpr std::size_t grown_size(std::size_t size) noexcept {
  constexpr std::size_t kLeast = std::size_t{1} << 20;
  std::size_t step = kLeast;
  while (size / 8 >= step) step *= 2;
  return std::max(kLeast, (size + step - 1) / step * step);
}

/// Returns memory of the current device. Throws Errc::resource.
[[nodiscard]] void* allocate_device(std::size_t size);
/// Returns host memory that the GPU reads and writes itself. Throws Errc::resource.
[[nodiscard]] void* allocate_pinned(std::size_t size);

/// Owns memory that grows.
template <void* (*allocate)(std::size_t), cudaError_t (*free)(void*)>
class CudaBuffer {
 public:
  CudaBuffer() noexcept = default;
  ~CudaBuffer() { release(); }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Returns at least `size` bytes. Their content is lost when the buffer has to grow. No work on
  /// the buffer may be pending. Throws Errc::resource.
  [[nodiscard]] std::byte* reserve(std::size_t size) {
    if (size > size_) {
      release();
      const std::size_t room = grown_size(size);
      data_ = static_cast<std::byte*>(allocate(room));
      size_ = room;
    }
    return data_;
  }

 private:
  void release() noexcept {
    if (data_ != nullptr) static_cast<void>(free(data_));
    data_ = nullptr;
    size_ = 0;
  }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

using DeviceBuffer = CudaBuffer<allocate_device, cudaFree>;
using PinnedBuffer = CudaBuffer<allocate_pinned, cudaFreeHost>;

}  // namespace hvd::detail
