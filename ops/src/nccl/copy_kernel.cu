// The kernel of copy_table.hpp.
#include "nccl/copy_table.hpp"

namespace hvd {
namespace {

__global__ void __launch_bounds__(kCopyThreads)
    copy_parts(const __grid_constant__ CopyTable table) {
  copy_tile(table, blockIdx.x, threadIdx.x);
}

}  // namespace

cudaError_t launch_copies(const CopyTable& table, cudaStream_t stream) {
  copy_parts<<<copy_blocks(table), kCopyThreads, 0, stream>>>(table);
  return cudaGetLastError();
}

}  // namespace hvd
