#include "nccl/cuda.hpp"

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

}  // namespace hvd::detail
