#include "nccl/nccl_backend.hpp"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fusion/blocks.hpp"
#include "nccl/cuda.hpp"
#include "nccl/fusion_memory.hpp"
#include "nccl/meeting.hpp"
#include "nccl/reduce_recipe.hpp"

namespace hvd::detail {
namespace {

// Making a communicator may take longer than the caller allows a collective.
constexpr std::chrono::seconds kStartTimeout{60};
// A clean end waits this long for the other ranks before the communicator is aborted.
constexpr std::chrono::seconds kCloseTimeout{5};
// An aborted kernel reads its flag many times in a millisecond, but a stalled stream of the trainer
// may never go on.
constexpr std::chrono::seconds kDrainTimeout{1};

Deadline deadline_of_start(Deadline deadline) {
  return std::max<Deadline>(deadline, Clock::now() + kStartTimeout);
}

}  // namespace

NcclBackend::NcclBackend(const GpuRank& self, Backend& host, std::unique_ptr<Copier> copier)
    : self_(self), host_(host), shared_(std::make_shared<Shared>(self.rank, std::move(copier))) {}

NcclBackend::NcclBackend(const GpuRank& self, std::unique_ptr<Backend> host,
                         std::shared_ptr<Shared> shared)
    : self_(self), owned_host_(std::move(host)), host_(*owned_host_), shared_(std::move(shared)) {}

NcclBackend::~NcclBackend() {
  try {
    Lock lock(shared_->mutex);
    if (!shared_->resources) return;
    if (comm_) close();
    lock.unlock();
    // A stream that stands still would keep this thread in ncclCommAbort and cudaFree.
    if (shared_.use_count() == 1) destroy_in_background(std::move(shared_), self_.gpu.index());
    shared_.reset();
  } catch (const std::exception&) {
    // A destructor cannot report the error.
  }
}

void NcclBackend::close() {
  auto& comms = shared_->comms;
  comms.erase(std::remove(comms.begin(), comms.end(), comm_.get()), comms.end());
  if (!shared_->first_error) {
    try {
      const DeviceGuard guard(self_.gpu.index());
      own().fusion.deregister(*comm_);
      Watch watch(Clock::now() + kCloseTimeout, shared_->aborted, "shutdown", "NCCL");
      comm_->close(watch);
    } catch (const Error&) {
      own().fusion.forget(*comm_);
      const ncclComm_t left = comm_->release();
      shared_->aborts.begin({&left, 1}, self_.gpu.index());
    }
  }
  comm_.reset();
}

NcclBackend::Resources& NcclBackend::own() {
  if (!shared_->resources) {
    shared_->copier->load();
    shared_->resources.emplace();
    constexpr std::size_t kSize = sizeof(std::int32_t);
    check(cudaMemsetAsync(shared_->resources->token.reserve(kSize), 0, kSize, stream()),
          "cudaMemsetAsync");
  }
  return *shared_->resources;
}

void NcclBackend::start(Deadline deadline, Watch& watch) {
  // NCCL allocates memory of the device, which may wait for queued kernels. Those may wait for a
  // rank that is lost, and an abort could not end them while NCCL starts.
  complete_all(watch);
  const ncclUniqueId id = meet(host_, self_, shared_->rank, deadline);
  comm_ = std::make_unique<NcclComm>(id, self_.size, self_.rank, watch);
  shared_->comms.push_back(comm_.get());
}

bool NcclBackend::supports(OpKind kind, Device device, DType dtype, ReduceOp op) const noexcept {
  const bool can = !reduces(kind) || can_reduce(dtype, op, *shared_->copier);
  return can && self_.owns(device);
}

void NcclBackend::abort() noexcept {
  shared_->aborted.store(true, std::memory_order_release);
  host_.abort();
}

void NcclBackend::after(DeviceEvent& ready, Deadline deadline) {
  if (ready.handle() == nullptr) return ready.wait(deadline);
  const Lock lock(shared_->mutex);
  const Watch watch(deadline, shared_->aborted, "wait for data", "NCCL");
  guarded(lock, watch, [&] {
    check(cudaStreamWaitEvent(stream(), static_cast<cudaEvent_t>(ready.handle()), 0),
          "cudaStreamWaitEvent");
  });
}

void NcclBackend::run(std::string_view phase, Deadline deadline,
                      const std::function<void(Watch&)>& enqueue) {
  const bool is_async = std::exchange(async_allowed_, false);
  const Lock lock(shared_->mutex);
  if (!comm_) deadline = deadline_of_start(deadline);
  Watch watch(deadline, shared_->aborted, phase, "NCCL");
  guarded(lock, watch, [&] {
    watch.check();
    if (!comm_) start(deadline, watch);
    enqueue(watch);
    auto call = std::make_unique<QueuedCall>(*this, watch);
    if (is_async) {
      async_ = std::move(call);
      return;
    }
    while (!call->poll()) call->pause();
  });
}

void NcclBackend::guarded(const Lock& lock, const Watch& watch, const std::function<void()>& body) {
  static_cast<void>(lock);
  if (shared_->first_error) std::rethrow_exception(shared_->first_error);
  try {
    watch.check_abort();
    // The device is set every time, since the calls may come from several threads. That fails too
    // after a kernel of the program has failed.
    const DeviceGuard guard(self_.gpu.index());
    body();
  } catch (...) {
    give_up(with_culprit(std::current_exception()));
    std::rethrow_exception(shared_->first_error);
  }
}

/// Names this rank in the error if its GPU has failed for good, as it does when a kernel of the
/// program uses wrong memory. CUDA then returns the error of that kernel from every call.
std::exception_ptr NcclBackend::with_culprit(std::exception_ptr error) const {
  try {
    std::rethrow_exception(error);
  } catch (const Error& own) {
    // After an abort or a deadline a kernel may hang, behind which calls of CUDA may block.
    if (own.code() != Errc::internal) return error;
    const CaptureModeGuard other_threads_may_capture;
    int before = 0;
    const bool known = cudaGetDevice(&before) == cudaSuccess;
    const cudaError_t set = cudaSetDevice(self_.gpu.index());
    const cudaError_t lasting = set == cudaSuccess ? lasting_error() : set;
    if (known) static_cast<void>(cudaSetDevice(before));
    if (lasting == cudaSuccess) return error;
    Fault fault = own.fault();
    fault.rank = shared_->rank;
    fault.cause += fmt::format("; its GPU has failed: {}", cudaGetErrorName(lasting));
    return std::make_exception_ptr(Error(Errc::internal, std::move(fault)));
  } catch (...) {
    return error;
  }
}

void NcclBackend::give_up(std::exception_ptr error) noexcept {
  shared_->first_error = std::move(error);
  // Kernels that wait for a peer end when the communicator is aborted, also those of a subset.
  std::vector<ncclComm_t> comms{shared_->copier->release()};
  for (NcclComm* const comm : shared_->comms) {
    shared_->resources->fusion.forget(*comm);
    comms.push_back(comm->release());
  }
  const Deadline deadline = Clock::now() + kDrainTimeout;
  shared_->aborts.begin(comms, self_.gpu.index());
  // Nothing on the device may write to the caller's memory any more.
  if (shared_->resources && shared_->aborts.wait_until(deadline)) {
    shared_->resources->stream.drain(deadline);
  }
}

std::unique_ptr<AsyncCollective> NcclBackend::take_async() noexcept {
  async_allowed_ = false;
  return std::move(async_);
}

NcclBackend::QueuedCall::QueuedCall(NcclBackend& backend, const Watch& watch)
    : backend_(backend), watch_(watch) {
  auto& free_events = backend.shared_->free_events;
  const auto free = std::find_if(free_events.begin(), free_events.end(),
                                 [](const auto& event) { return event.use_count() == 1; });
  if (free == free_events.end()) {
    end_ = std::make_shared<CudaEvent>();
  } else {
    end_ = std::move(*free);
    free_events.erase(free);
  }
  end_->record(backend.stream());
}

bool NcclBackend::QueuedCall::try_complete() {
  // A thread that makes a call holds the lock for as long as the call takes.
  const Lock lock(backend_.shared_->mutex, std::try_to_lock);
  if (!lock) return false;
  if (!std::exchange(is_oldest_, true)) watch_.restart();
  bool over = false;
  backend_.guarded(lock, watch_, [&] {
    over = poll();
    if (!over) watch_.check();
  });
  return over;
}

bool NcclBackend::QueuedCall::poll() {
  const bool over = end_->done();
  backend_.comm_->check_health(watch_);  // after the end too: kernels also end when NCCL gives up
  if (over) backend_.shared_->free_events.push_back(std::move(end_));
  return over;
}

std::unique_ptr<Backend> NcclBackend::subset(std::span<const int> ranks, Deadline deadline) {
  return std::unique_ptr<Backend>(
      new NcclBackend(self_.in(ranks), host_.subset(ranks, deadline), shared_));
}

void NcclBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  const Arithmetic arithmetic = Arithmetic::of(call, self_.size);
  if (total_count(call.tensors) == 0) return;
  // Which tensors are packed depends on the call alone, so that all ranks decide the same, also a
  // rank that has no memory of its own.
  const std::size_t element = size_of(call.dtype);
  const FusedLayout layout(call.tensors, element, call.f32_memory);
  const ReduceRecipe packed = reduce_recipe(arithmetic, self_.size, *shared_->copier, true);
  const ReduceRecipe in_place = reduce_recipe(arithmetic, self_.size, *shared_->copier, false);

  run("allreduce", deadline, [&](Watch& watch) {
    std::byte* const fused = layout.packed() > 0 ? reserve(layout.packed(), watch) : nullptr;
    // NCCL's ranks must agree on whether they pass registered memory. That of tensors is not
    // registered, and neither is this, which replaces an output that this rank does not have.
    std::byte* const spare =
        layout.spare() > 0 ? reserve_unregistered(layout.spare(), watch) : nullptr;
    std::vector<Reduction> reductions;
    if (fused != nullptr) reductions.push_back({fused, fused, layout.packed() / element, true});
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
      const TensorSlice& tensor = call.tensors[i];
      const FusedLayout::Place& place = layout[i];
      if (place.is_packed) {
        copy(fused + place.offset, tensor.input, place.bytes);
      } else if (place.bytes > 0) {
        std::byte* const dst = tensor.output != nullptr ? tensor.output : spare + place.offset;
        const bool first_copied = tensor.input == nullptr || in_place.before != 1.0;
        if (first_copied) copy(dst, tensor.input, place.bytes);
        const std::byte* const src = first_copied ? dst : tensor.input;
        reductions.push_back({src, dst, place.bytes / element, false});
      }
    }
    // Where the two recipes differ, nothing is scaled in place before the reduction.
    flush({call.dtype, call.op, packed.before, call.f32_memory, false}, watch);
    all_reduce(reductions, packed, in_place, watch);
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
      std::byte* const output = call.tensors[i].output;
      const FusedLayout::Place& place = layout[i];
      if (output != nullptr) {
        copy(output, place.is_packed ? fused + place.offset : output, place.bytes);
      }
    }
    // A copy from a place to itself only scales, and costs nothing without a scale.
    flush({.dtype = call.dtype, .factor = packed.after, .f32_destination = call.f32_memory}, watch);
  });
}

void NcclBackend::reducescatter(const ReducescatterCall& call, Deadline deadline) {
  const Arithmetic arithmetic = Arithmetic::of(call, self_.size);
  const ScatterBlocks blocks(call.tensors, self_.size);
  if (blocks.total() == 0) return;
  const bool lone = call.tensors.size() == 1;
  ReduceRecipe recipe = reduce_recipe(arithmetic, self_.size, *shared_->copier, !lone);
  const std::size_t element = size_of(call.dtype);
  const Range block = blocks.block(self_.rank);
  const auto bytes = [&](std::int64_t count) { return static_cast<std::size_t>(count) * element; };

  run("reducescatter", deadline, [&](Watch& watch) {
    if (lone && recipe.before == 1.0) {
      const ScatterSlice& tensor = call.tensors.front();
      scatter(recipe, tensor.input, tensor.output, blocks.bounds(), element, watch);
      return scale(call.dtype, recipe.after, tensor.output, block.size(), watch);
    }
    std::byte* const fused = reserve(bytes(blocks.total()), watch);
    blocks.for_each_part([&](std::size_t tensor, Range part, std::int64_t offset) {
      copy(fused + bytes(offset), call.tensors[tensor].input + bytes(part.begin),
           bytes(part.size()));
    });
    flush({.dtype = call.dtype, .factor = recipe.before}, watch);
    std::byte* const result = fused + bytes(block.begin);
    scatter(recipe, fused, result, blocks.bounds(), element, watch);
    blocks.for_each_result(self_.rank, [&](std::size_t tensor, auto offset, auto count) {
      copy(call.tensors[tensor].output, result + bytes(offset), bytes(count));
    });
    flush({.dtype = call.dtype, .factor = recipe.after}, watch);
  });
}

void NcclBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  if (total_count(call.tensors) == 0) return;
  run("broadcast", deadline, [&](Watch& watch) {
    staged_broadcast(call, self_.rank, staging(watch), [&](std::byte* data, std::size_t size) {
      flush({}, watch);
      comm_->settle(ncclBroadcast(data, data, size, ncclUint8, call.root, comm_->get(), stream()),
                    "ncclBroadcast", watch);
    });
    flush({}, watch);
  });
}

void NcclBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  run("allgather", deadline, [&](Watch& watch) {
    staged_allgather(call, self_.rank, self_.size, staging(watch), [&](auto* data, auto bounds) {
      flush({}, watch);
      gather(data, bounds, watch);
    });
    flush({}, watch);
  });
}

void NcclBackend::alltoall(const AlltoallCall& call, Deadline deadline) {
  const std::vector<std::size_t> sends = byte_offsets(call.send_counts, call.dtype);
  const std::vector<std::size_t> receives = byte_offsets(call.receive_counts, call.dtype);
  const auto me = static_cast<std::size_t>(self_.rank);

  run("alltoall", deadline, [&](Watch& watch) {
    copy(call.output + receives[me], call.input + sends[me], sends[me + 1] - sends[me]);
    flush({}, watch);
    grouped("ncclSend", watch, [&](const Queue& queue) {
      for (int peer = 0; peer < self_.size; ++peer) {
        if (peer == self_.rank) continue;
        const auto p = static_cast<std::size_t>(peer);
        const std::size_t sent = sends[p + 1] - sends[p];
        const std::size_t received = receives[p + 1] - receives[p];
        if (sent > 0) {
          queue(ncclSend(call.input + sends[p], sent, ncclUint8, peer, comm_->get(), stream()));
        }
        if (received > 0) {
          queue(ncclRecv(call.output + receives[p], received, ncclUint8, peer, comm_->get(),
                         stream()));
        }
      }
    });
  });
}

void NcclBackend::barrier(Deadline deadline) {
  run("barrier", deadline, [&](Watch& watch) {
    std::byte* const token = own().token.reserve(sizeof(std::int32_t));
    comm_->settle(ncclAllReduce(token, token, 1, ncclInt32, ncclSum, comm_->get(), stream()),
                  "ncclAllReduce", watch);
  });
}

}  // namespace hvd::detail
