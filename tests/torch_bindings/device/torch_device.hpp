// Makes the fake GPU LibTorch's CUDA device, of which LibTorch for CPUs has none: its memory,
// streams, events, and the few operations that a training step needs.
#pragma once

namespace hvd::test {

/// The device counts these calls of `hvd::torch` and LibTorch.
enum class Counted { host_waits, events_recorded, stream_waits };

/// Returns how often threads have waited for a stream of the device, recorded an event there, or
/// let a stream wait for one.
[[nodiscard]] int count_of(Counted what, int device);

/// Resets the fake GPU to four devices, and gives them memory and streams for LibTorch during its
/// life. All operations run in a queue, on the current stream of their thread, which is the default
/// stream unless a guard has set another.
class TorchDevice {
 public:
  TorchDevice();
  /// No tensor on the device is alive any more.
  ~TorchDevice();
  TorchDevice(const TorchDevice&) = delete;
  TorchDevice& operator=(const TorchDevice&) = delete;
};

}  // namespace hvd::test
