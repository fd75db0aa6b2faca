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
  const cudaError_t result = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status);
  if (result == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  static_cast<void>(cudaGetLastError());
  // CUDA gives this error for the default stream while another one is captured, which then forbids
  // any work in the default stream. Other errors are not of this call, as that of a kernel that has
  // failed. The next call reports them.
  return result == cudaErrorStreamCaptureImplicit;
}

CaptureModeGuard::CaptureModeGuard() noexcept
    : previous_(exchange(cudaStreamCaptureModeThreadLocal)) {}

CaptureModeGuard::~CaptureModeGuard() { static_cast<void>(exchange(previous_)); }

}  // namespace hvd::detail
