// The NCCL backend's calls of NCCL and CUDA: everything here is queued on its stream.
#include "nccl/nccl_backend.hpp"
#include "nccl/premul_sum.hpp"

namespace hvd {

std::byte* NcclBackend::reserve(std::size_t size, Watch& watch) {
  if (size > own().fusion.size()) {
    // What flies may still use the memory that is given back.
    cudaError_t state = cudaErrorNotReady;
    while ((state = cudaStreamQuery(stream())) == cudaErrorNotReady) watch.pause();
    check(state, "cudaStreamQuery");
  }
  return own().fusion.reserve(size, *comm_);
}

Staging NcclBackend::staging(Watch& watch) {
  return {.copy = [this](std::byte* dst, const std::byte* src,
                         std::size_t size) { copy(dst, src, size); },
          .reserve = [this, &watch](std::size_t size) { return reserve(size, watch); }};
}

void NcclBackend::copy(std::byte* dst, const std::byte* src, std::size_t size) {
  if (size > 0) copies_.push_back({dst, src, size});
}

void NcclBackend::flush(const Treatment& treatment, Watch& watch) {
  if (!copies_.empty()) shared_->copier->run(copies_, treatment, stream(), watch);
  copies_.clear();
}

void NcclBackend::scale(DType dtype, double factor, std::byte* data, std::int64_t count,
                        Watch& watch) {
  if (factor == 1.0) return;
  copy(data, data, static_cast<std::size_t>(count) * size_of(dtype));
  flush({.dtype = dtype, .factor = factor}, watch);
}

void NcclBackend::grouped(std::string_view name, Watch& watch,
                          const std::function<void(const Queue&)>& calls) {
  comm_->settle(ncclGroupStart(), "ncclGroupStart", watch);
  ncclResult_t worst = ncclSuccess;
  calls([&worst](ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress) worst = result;
  });
  const ncclResult_t launched = ncclGroupEnd();
  comm_->settle(worst == ncclSuccess ? launched : worst, name, watch);
}

void NcclBackend::reduce(const ReduceRecipe& recipe, Watch& watch,
                         const std::function<void(ncclRedOp_t)>& launch) {
  if (!recipe.premultiply) return launch(recipe.op);
  const PremulSum premultiplied(*comm_, recipe.type, *recipe.premultiply, watch);
  launch(premultiplied.get());
}

void NcclBackend::gather(std::byte* data, std::span<const std::int64_t> bounds, Watch& watch) {
  // NCCL has no allgather of unequal counts: one broadcast per rank, launched as one group.
  grouped("ncclBroadcast", watch, [&](const Queue& queue) {
    for (int root = 0; root < place_.size; ++root) {
      const auto r = static_cast<std::size_t>(root);
      const auto size = static_cast<std::size_t>(bounds[r + 1] - bounds[r]);
      if (size == 0) continue;
      std::byte* const block = data + bounds[r];
      queue(ncclBroadcast(block, block, size, ncclUint8, root, comm_->get(), stream()));
    }
  });
}

void NcclBackend::scatter(const ReduceRecipe& recipe, const std::byte* src, std::byte* dst,
                          std::span<const std::int64_t> bounds, std::size_t element, Watch& watch) {
  const auto count = [&](std::size_t r) {
    return static_cast<std::size_t>(bounds[r + 1] - bounds[r]);
  };
  bool equal = true;
  for (std::size_t r = 0; r + 1 < bounds.size(); ++r) equal = equal && count(r) == count(0);
  reduce(recipe, watch, [&](ncclRedOp_t op) {
    if (equal) {
      return comm_->settle(
          ncclReduceScatter(src, dst, count(0), recipe.type, op, comm_->get(), stream()),
          "ncclReduceScatter", watch);
    }
    // Nor a reducescatter of unequal counts.
    grouped("ncclReduce", watch, [&](const Queue& queue) {
      for (int root = 0; root < place_.size; ++root) {
        const auto r = static_cast<std::size_t>(root);
        if (count(r) == 0) continue;
        std::byte* const to = root == place_.rank ? dst : nullptr;
        queue(ncclReduce(src + static_cast<std::size_t>(bounds[r]) * element, to, count(r),
                         recipe.type, op, root, comm_->get(), stream()));
      }
    });
  });
}

}  // namespace hvd
