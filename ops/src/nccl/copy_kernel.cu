// Implements the kernel of copy_table.hpp.
#include "nccl/copy_table.hpp"

namespace hvd::detail {
namespace {

__global__ void __launch_bounds__(kCopyThreads)
    copy_parts(const __grid_constant__ CopyTable table) {
  copy_tile(table, blockIdx.x, threadIdx.x);
}

}  // namespace

cudaError_t load_copies() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, copy_parts);
}

std::vector<int> copy_architectures() { return {__CUDA_ARCH_LIST__}; }

cudaError_t launch_copies(const CopyTable& table, cudaStream_t stream) {
  // This returns the result of the launch alone; cudaGetLastError would also return earlier errors.
  void* arguments[] = {const_cast<CopyTable*>(&table)};
  return cudaLaunchKernel(copy_parts, dim3(table.tiles), dim3(kCopyThreads), arguments, 0,
                          stream);
}

}  // namespace hvd::detail
