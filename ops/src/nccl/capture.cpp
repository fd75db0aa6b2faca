#include <cuda_runtime_api.h>

#include <hvd/ops/internal/capture.hpp>

namespace hvd::detail {
namespace {

/// Sets the mode of this thread and returns the previous one.
int exchange(int mode) noexcept {
  auto value = static_cast<cudaStreamCaptureMode>(mode);
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&value));
  return value;
}

}  // namespace

bool is_capturing(void* stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status) == cudaSuccess) {
    return status != cudaStreamCaptureStatusNone;
  }
  // CUDA refuses to answer for the default stream only while another one is captured, which then
  // forbids any work in the default stream.
  static_cast<void>(cudaGetLastError());
  return true;
}

CaptureModeGuard::CaptureModeGuard() noexcept
    : previous_(exchange(cudaStreamCaptureModeThreadLocal)) {}

CaptureModeGuard::~CaptureModeGuard() { static_cast<void>(exchange(previous_)); }

}  // namespace hvd::detail
