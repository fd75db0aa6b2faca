#include "nccl/nccl_backend.hpp"

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "nccl/device_guard.hpp"
#include "nccl/nccl_types.hpp"
#include "nccl/premul_sum.hpp"

namespace hvd {
namespace {

// A clean end waits for the other ranks this long; then the communicator is aborted.
constexpr std::chrono::seconds kCloseTimeout{5};
// An aborted kernel looks at its flag many times in a millisecond.
constexpr std::chrono::seconds kDrainTimeout{1};

std::int64_t total_count(std::span<const TensorSlice> tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0},
                         [](std::int64_t sum, const TensorSlice& t) { return sum + t.count; });
}

}  // namespace

NcclBackend::Resources::Resources(const ncclUniqueId& id, const NcclPlace& place, Watch& watch)
    : comm(id, place.size, place.rank, watch) {}

NcclBackend::NcclBackend(const NcclPlace& place, const ncclUniqueId& id, Deadline deadline)
    : place_(place) {
  const DeviceGuard guard(place_.device);
  Watch watch(deadline, aborted_, "init", "NCCL");
  own_.emplace(id, place_, watch);
  check(cudaMemset(own_->token.reserve(sizeof(std::int32_t)), 0, sizeof(std::int32_t)),
        "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

NcclBackend::~NcclBackend() {
  try {
    const DeviceGuard guard(place_.device);
    if (!first_error_) {
      Watch watch(Clock::now() + kCloseTimeout, aborted_, "shutdown", "NCCL");
      own_->comm.close(watch);
    }
    own_.reset();
  } catch (const std::exception&) {
    // Nobody is left to tell. What is still open is aborted below.
  }
}

bool NcclBackend::supports(OpKind kind, Device device, DType dtype, ReduceOp op) const noexcept {
  if (device.kind != Device::Kind::cuda || device.index != place_.device) return false;
  return kind != OpKind::allreduce || nccl_type(dtype, op).has_value();
}

void NcclBackend::abort() noexcept { aborted_.store(true, std::memory_order_release); }

void NcclBackend::run(std::string_view phase, Deadline deadline,
                      const std::function<void(Watch&)>& enqueue) {
  if (first_error_) std::rethrow_exception(first_error_);
  try {
    const DeviceGuard guard(place_.device);
    Watch watch(deadline, aborted_, phase, "NCCL");
    watch.check();
    enqueue(watch);
    own_->finished.record(own_->stream.get());
    bool done = false;
    while (!done) {
      done = own_->finished.done();
      own_->comm.check_health(watch);  // after the end too: kernels also end when NCCL gives up
      if (!done) watch.pause();
    }
  } catch (...) {
    first_error_ = std::current_exception();
    // Kernels that wait for a peer end with the communicator.
    own_->comm.abort();
    own_->scaler.abort();
    drain();
    throw;
  }
}

void NcclBackend::drain() noexcept {
  const Deadline deadline = Clock::now() + kDrainTimeout;
  while (cudaStreamQuery(own_->stream.get()) == cudaErrorNotReady && Clock::now() < deadline) {
    std::this_thread::yield();
  }
}

void NcclBackend::copy(std::byte* dst, const std::byte* src, std::size_t size) {
  if (size == 0 || dst == src) return;
  check(cudaMemcpyAsync(dst, src, size, cudaMemcpyDeviceToDevice, own_->stream.get()),
        "cudaMemcpyAsync");
}

void NcclBackend::reduce(const ReduceRecipe& recipe, const std::byte* src, std::byte* dst,
                         std::int64_t count, Watch& watch) {
  const cudaStream_t stream = own_->stream.get();
  if (recipe.before != 1.0) {
    own_->scaler.scale(src, dst, count, recipe.type, recipe.before, stream, watch);
    src = dst;
  }
  std::optional<PremulSum> premultiplied;
  if (recipe.premultiply) {
    premultiplied.emplace(own_->comm, recipe.type, *recipe.premultiply, watch);
  }
  own_->comm.settle(
      ncclAllReduce(src, dst, static_cast<std::size_t>(count), recipe.type,
                    premultiplied ? premultiplied->get() : recipe.op, own_->comm.get(), stream),
      "ncclAllReduce", watch);
  if (recipe.after != 1.0) {
    own_->scaler.scale(dst, dst, count, recipe.type, recipe.after, stream, watch);
  }
}

void NcclBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  const ReduceRecipe recipe = reduce_recipe(call, place_.size);
  const std::int64_t total = total_count(call.tensors);
  if (total == 0) return;
  const std::size_t element = size_of(call.dtype);

  run("allreduce", deadline, [&](Watch& watch) {
    if (call.tensors.size() == 1) {
      const TensorSlice& tensor = call.tensors.front();
      reduce(recipe, tensor.input, tensor.output, total, watch);
      return;
    }
    std::byte* const fused = own_->fusion.reserve(static_cast<std::size_t>(total) * element);
    std::byte* at = fused;
    for (const TensorSlice& tensor : call.tensors) {
      const std::size_t size = static_cast<std::size_t>(tensor.count) * element;
      copy(at, tensor.input, size);
      at += size;
    }
    reduce(recipe, fused, fused, total, watch);
    at = fused;
    for (const TensorSlice& tensor : call.tensors) {
      const std::size_t size = static_cast<std::size_t>(tensor.count) * element;
      copy(tensor.output, at, size);
      at += size;
    }
  });
}

void NcclBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  const std::size_t element = size_of(call.dtype);
  const std::size_t total = static_cast<std::size_t>(total_count(call.tensors)) * element;
  if (total == 0) return;

  run("broadcast", deadline, [&](Watch& watch) {
    const auto send = [&](const std::byte* src, std::byte* dst) {
      own_->comm.settle(ncclBroadcast(src, dst, total, ncclUint8, call.root, own_->comm.get(),
                                      own_->stream.get()),
                        "ncclBroadcast", watch);
    };
    if (call.tensors.size() == 1) {
      const TensorSlice& tensor = call.tensors.front();
      send(place_.rank == call.root ? tensor.input : tensor.output, tensor.output);
      return;
    }
    std::byte* const fused = own_->fusion.reserve(total);
    const bool root = place_.rank == call.root;
    std::byte* at = fused;
    for (const TensorSlice& tensor : call.tensors) {
      const std::size_t size = static_cast<std::size_t>(tensor.count) * element;
      if (root) {
        copy(at, tensor.input, size);
        copy(tensor.output, tensor.input, size);
      }
      at += size;
    }
    send(fused, fused);
    if (root) return;
    at = fused;
    for (const TensorSlice& tensor : call.tensors) {
      const std::size_t size = static_cast<std::size_t>(tensor.count) * element;
      copy(tensor.output, at, size);
      at += size;
    }
  });
}

void NcclBackend::gather(const std::byte* src, std::byte* dst, std::span<const std::size_t> sizes,
                         Watch& watch) {
  // NCCL has no allgather of unequal counts: one broadcast per rank, launched as one group.
  own_->comm.settle(ncclGroupStart(), "ncclGroupStart", watch);
  ncclResult_t queued = ncclSuccess;
  std::size_t offset = 0;
  for (int root = 0; root < place_.size; ++root) {
    const std::size_t size = sizes[static_cast<std::size_t>(root)];
    if (size > 0) {
      const std::byte* from = root == place_.rank ? src : dst + offset;
      const ncclResult_t result = ncclBroadcast(from, dst + offset, size, ncclUint8, root,
                                                own_->comm.get(), own_->stream.get());
      if (result != ncclSuccess && result != ncclInProgress) queued = result;
    }
    offset += size;
  }
  const ncclResult_t launched = ncclGroupEnd();
  own_->comm.settle(queued == ncclSuccess ? launched : queued, "ncclBroadcast", watch);
}

void NcclBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  const std::size_t element = size_of(call.dtype);
  const auto ranks = static_cast<std::size_t>(place_.size);
  const auto bytes = [&](const GatherSlice& tensor, std::size_t rank) {
    return static_cast<std::size_t>(tensor.counts[rank]) * element;
  };
  std::vector<std::size_t> sizes(ranks, 0);  // contributed by each rank, all tensors
  for (const GatherSlice& tensor : call.tensors) {
    for (std::size_t rank = 0; rank < ranks; ++rank) sizes[rank] += bytes(tensor, rank);
  }
  const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  if (total == 0) return;
  const auto me = static_cast<std::size_t>(place_.rank);

  run("allgather", deadline, [&](Watch& watch) {
    if (call.tensors.size() == 1) {
      gather(call.tensors.front().input, call.tensors.front().output, sizes, watch);
      return;
    }
    std::byte* const fused = own_->fusion.reserve(std::max<std::size_t>(sizes[me], 1));
    std::byte* const gathered = own_->gathered.reserve(total);
    std::byte* to = fused;
    for (const GatherSlice& tensor : call.tensors) {
      copy(to, tensor.input, bytes(tensor, me));
      to += bytes(tensor, me);
    }
    gather(fused, gathered, sizes, watch);
    // From "by rank, then tensor" to "by tensor, then rank".
    std::vector<std::size_t> written(call.tensors.size(), 0);
    const std::byte* from = gathered;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const std::size_t size = bytes(call.tensors[i], rank);
        copy(call.tensors[i].output + written[i], from, size);
        written[i] += size;
        from += size;
      }
    }
  });
}

void NcclBackend::barrier(Deadline deadline) {
  run("barrier", deadline, [&](Watch& watch) {
    std::byte* const token = own_->token.reserve(sizeof(std::int32_t));
    own_->comm.settle(
        ncclAllReduce(token, token, 1, ncclInt32, ncclSum, own_->comm.get(), own_->stream.get()),
        "ncclAllReduce", watch);
  });
}

}  // namespace hvd
