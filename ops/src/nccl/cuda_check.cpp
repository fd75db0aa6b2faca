#include "nccl/cuda_check.hpp"

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd {

void check(cudaError_t result, std::string_view what) {
  if (result == cudaSuccess) return;
  // Takes the error off the thread's record, where unrelated code would find it later.
  static_cast<void>(cudaGetLastError());
  throw Error(
      result == cudaErrorMemoryAllocation ? Errc::resource : Errc::internal,
      fmt::format("{}: {} ({})", what, cudaGetErrorString(result), cudaGetErrorName(result)));
}

}  // namespace hvd
