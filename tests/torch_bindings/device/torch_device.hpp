// Registers the fake GPU as LibTorch's CUDA device, which a LibTorch for CPUs lacks: memory,
// streams, events, and operations, which run on the CPU in the order of the streams.
#pragma once

namespace hvd::test {

/// The device counts these calls of `hvd::torch` and LibTorch.
enum class Counted { host_waits, events_recorded, stream_waits, operations };

/// Returns how often threads have waited for a stream of the device, recorded an event there, let a
/// stream wait for one, or queued an operation of LibTorch, which is a kernel on a real device.
[[nodiscard]] int count_of(Counted what, int device);

/// Resets the fake GPU to four devices, and gives them memory and streams for LibTorch during its
/// life. Operations are queued on the calling thread's current stream, which is
/// the default stream unless a guard has set another.
class TorchDevice {
 public:
  TorchDevice();
  /// All tensors on the device must have been destroyed.
  ~TorchDevice();
  TorchDevice(const TorchDevice&) = delete;
  TorchDevice& operator=(const TorchDevice&) = delete;
};

}  // namespace hvd::test
