#include "nccl/cuda.hpp"

#include <thread>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {

void check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  // This clears the thread's last error, which unrelated code would find later.
  static_cast<void>(cudaGetLastError());
  throw Error(
      result == cudaErrorMemoryAllocation ? Errc::resource : Errc::internal,
      fmt::format("{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result)));
}

bool is_ready(cudaError_t result, std::string_view what) {
  if (result != cudaErrorNotReady) {
    check(result, what);
    return true;
  }
  static_cast<void>(cudaGetLastError());
  return false;
}

void CudaStream::drain(Deadline deadline) const noexcept {
  try {
    while (!done() && Clock::now() < deadline) std::this_thread::yield();
  } catch (const Error&) {
    // After the error of a kernel nothing on the stream runs any more.
  }
}

}  // namespace hvd::detail
