// Implements the copier with CUDA's own copies, for a build without nvcc.
#include <algorithm>
#include <array>

#include <hvd/core/error.hpp>

#include "fusion/identity.hpp"
#include "nccl/copier.hpp"
#include "nccl/cuda.hpp"
#include "nccl/nccl_comm.hpp"
#include "nccl/reduce_recipe.hpp"

namespace hvd::detail {
namespace {

constexpr std::size_t kBlockOfOneRank = 16 << 10;

void copy(std::byte* dst, const std::byte* src, std::size_t size, cudaStream_t stream) {
  if (size == 0 || dst == src) return;
  check(cudaMemcpyAsync(dst, src, size, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

/// Copies a block from the host, which CUDA reads before the call returns, and then doubles the
/// filled part with each copy.
void fill(std::byte* data, std::size_t size, const ElementOp& element_op, cudaStream_t stream) {
  std::array<std::byte, 4096> block;
  std::size_t filled = std::min(size, block.size());
  fill_identity(element_op.dtype, element_op.identity_of, block.data(),
                static_cast<std::int64_t>(filled / size_of(element_op.dtype)));
  check(cudaMemcpyAsync(data, block.data(), filled, cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync");
  while (filled < size) {
    const std::size_t next = std::min(filled, size - filled);
    copy(data + filled, data, next, stream);
    filled += next;
  }
}

class PlainCopier final : public Copier {
 public:
  [[nodiscard]] bool scales(DType dtype) const noexcept override {
    return is_floating_point(dtype);
  }
  [[nodiscard]] bool scales_for_free() const noexcept override { return false; }

  [[nodiscard]] bool must_start(const ElementOp& element_op) const noexcept override {
    return element_op.factor != 1.0 && !scaler_.has_started();
  }
  void run(std::span<const DeviceCopy> copies, const ElementOp& element_op, cudaStream_t stream,
           Watch& watch) override {
    if (element_op.converts()) {
      throw Error(Errc::unsupported, "a build without nvcc converts nothing while it copies");
    }
    for (const DeviceCopy& each : copies) {
      if (each.src == nullptr) {
        fill(each.dst, each.size, element_op, stream);
      } else if (element_op.factor == 1.0) {
        copy(each.dst, each.src, each.size, stream);
      } else {
        // Before 2.29.7 NCCL's kernel for one rank divides the elements among its blocks so that it
        // may miss the last ones (`oneRankReduce` in its onerank.cu). It misses none of a multiple
        // of 16 KiB, and none of less than that.
        const std::size_t most = each.size - each.size % kBlockOfOneRank;
        scale({each.dst, each.src, most}, element_op, stream, watch);
        scale({each.dst + most, each.src + most, each.size - most}, element_op, stream, watch);
      }
    }
  }
  [[nodiscard]] ncclComm_t release() noexcept override { return scaler_.release(); }

 private:
  void scale(const DeviceCopy& part, const ElementOp& element_op, cudaStream_t stream,
             Watch& watch) {
    if (part.size == 0) return;
    scaler_.scale(part.src, part.dst,
                  static_cast<std::int64_t>(part.size / size_of(element_op.dtype)),
                  *nccl_type(element_op.dtype, ReduceOp::sum), element_op.factor, stream, watch);
  }

  NcclScaler scaler_;
};

}  // namespace

std::unique_ptr<Copier> make_plain_copier() { return std::make_unique<PlainCopier>(); }

}  // namespace hvd::detail
