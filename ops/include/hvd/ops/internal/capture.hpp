// Declares what the components above ops have to know about captures of CUDA graphs, without CUDA's
// headers. In a build without NCCL nothing is ever captured (nccl/no_nccl.cpp).
#pragma once

namespace hvd::detail {

/// Tells whether a graph is being captured on `stream`, which is a cudaStream_t. Null is the
/// default stream of the current device. Any thread may call it while the stream's device is
/// current.
[[nodiscard]] bool is_capturing(void* stream) noexcept;

/// During its life this thread may call CUDA while another thread captures a graph. Otherwise a
/// query or an allocation here would make that capture fail, which by default forbids such calls to
/// all threads of the process. A capture of this thread itself still forbids them.
class CaptureModeGuard {
 public:
  CaptureModeGuard() noexcept;
  ~CaptureModeGuard();
  CaptureModeGuard(const CaptureModeGuard&) = delete;
  CaptureModeGuard& operator=(const CaptureModeGuard&) = delete;

 private:
  int previous_ = 0;  ///< a cudaStreamCaptureMode
};

}  // namespace hvd::detail
