// Contains the NCCL backend's calls of NCCL and CUDA, which queue work on its stream.
#include <algorithm>

#include "nccl/nccl_backend.hpp"
#include "nccl/nccl_comm.hpp"

namespace hvd::detail {
namespace {

/// Returns the size between two neighbours of `bounds`.
std::size_t size_at(std::span<const std::int64_t> bounds, std::size_t index) {
  return static_cast<std::size_t>(bounds[index + 1] - bounds[index]);
}

bool are_equal(std::span<const std::int64_t> bounds) {
  for (std::size_t i = 1; i + 1 < bounds.size(); ++i) {
    if (size_at(bounds, i) != size_at(bounds, 0)) return false;
  }
  return true;
}

}  // namespace

void NcclBackend::complete_all(Watch& watch) {
  while (!own().stream.done()) {
    for (const NcclComm* const comm : shared_->comms) comm->check_health(watch);
    watch.pause();
  }
}

std::byte* NcclBackend::reserve(std::size_t size, Watch& watch) {
  // Queued calls may still use the memory that is given back.
  if (size > own().fusion.size()) complete_all(watch);
  return own().fusion.reserve(size, *comm_);
}

std::byte* NcclBackend::reserve_unregistered(std::size_t size, Watch& watch) {
  if (size > own().unregistered.size()) complete_all(watch);
  return own().unregistered.reserve(size);
}

Staging NcclBackend::staging(Watch& watch) {
  return {.copy = [this](std::byte* dst, const std::byte* src,
                         std::size_t size) { copy(dst, src, size); },
          .reserve = [this, &watch](std::size_t size) { return reserve(size, watch); }};
}

void NcclBackend::copy(std::byte* dst, const std::byte* src, std::size_t size) {
  if (size > 0) copies_.push_back({dst, src, size});
}

void NcclBackend::flush(const ElementOp& element_op, Watch& watch) {
  if (!copies_.empty()) {
    if (shared_->copier->must_start(element_op)) complete_all(watch);
    shared_->copier->run(copies_, element_op, stream(), watch);
  }
  copies_.clear();
}

void NcclBackend::scale(DType dtype, double factor, std::byte* data, std::int64_t count,
                        Watch& watch) {
  if (factor == 1.0) return;
  copy(data, data, bytes_of(count, dtype));
  flush({.dtype = dtype, .factor = factor}, watch);
}

void NcclBackend::grouped(std::string_view name, Watch& watch,
                          const std::function<void(const Queue&)>& calls) {
  NcclGroup group;
  if (group.is_open()) calls([&group](ncclResult_t result) { group.add(result); });
  comm_->settle(group.launch(), name, watch);
}

void NcclBackend::reduce(const ReduceRecipe& recipe, Watch& watch,
                         const std::function<void(ncclRedOp_t)>& launch) {
  if (!recipe.premultiply) return launch(recipe.op);
  const PremulSum premultiplied(*comm_, recipe.type, *recipe.premultiply, watch);
  launch(premultiplied.get());
}

void NcclBackend::all_reduce(std::span<const Reduction> reductions, const ReduceRecipe& packed,
                             const ReduceRecipe& in_place, Watch& watch) {
  const bool all_packed = std::all_of(reductions.begin(), reductions.end(),
                                      [](const Reduction& each) { return each.is_packed; });
  reduce(all_packed ? packed : in_place, watch, [&](ncclRedOp_t op) {
    grouped("ncclAllReduce", watch, [&](const Queue& queue) {
      for (const Reduction& each : reductions) {
        const bool plain = each.is_packed && !packed.premultiply;
        queue(ncclAllReduce(each.src, each.dst, each.count, packed.type, plain ? packed.op : op,
                            comm_->get(), stream()));
      }
    });
  });
}

void NcclBackend::gather(std::byte* data, std::span<const std::int64_t> bounds, Watch& watch) {
  if (are_equal(bounds)) {
    const std::byte* const mine = data + bounds[static_cast<std::size_t>(self_.rank)];
    return comm_->settle(
        ncclAllGather(mine, data, size_at(bounds, 0), ncclUint8, comm_->get(), stream()),
        "ncclAllGather", watch);
  }
  // NCCL has no allgather of unequal counts, so every rank broadcasts, in one group of calls.
  grouped("ncclBroadcast", watch, [&](const Queue& queue) {
    for (int root = 0; root < self_.size; ++root) {
      const auto r = static_cast<std::size_t>(root);
      if (size_at(bounds, r) == 0) continue;
      std::byte* const block = data + bounds[r];
      queue(
          ncclBroadcast(block, block, size_at(bounds, r), ncclUint8, root, comm_->get(), stream()));
    }
  });
}

void NcclBackend::scatter(const ReduceRecipe& recipe, const std::byte* src, std::byte* dst,
                          std::span<const std::int64_t> bounds, std::size_t element, Watch& watch) {
  const auto count = [&](std::size_t r) { return size_at(bounds, r); };
  reduce(recipe, watch, [&](ncclRedOp_t op) {
    if (are_equal(bounds)) {
      return comm_->settle(
          ncclReduceScatter(src, dst, count(0), recipe.type, op, comm_->get(), stream()),
          "ncclReduceScatter", watch);
    }
    // NCCL has no reducescatter of unequal counts, so there is a reduce to every rank, in one
    // group.
    grouped("ncclReduce", watch, [&](const Queue& queue) {
      for (int root = 0; root < self_.size; ++root) {
        const auto r = static_cast<std::size_t>(root);
        if (count(r) == 0) continue;
        std::byte* const to = root == self_.rank ? dst : nullptr;
        queue(ncclReduce(src + static_cast<std::size_t>(bounds[r]) * element, to, count(r),
                         recipe.type, op, root, comm_->get(), stream()));
      }
    });
  });
}

}  // namespace hvd::detail
