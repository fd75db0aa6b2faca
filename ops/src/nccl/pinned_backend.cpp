#include "nccl/pinned_backend.hpp"

#include <numeric>
#include <thread>
#include <utility>

#include "nccl/cuda.hpp"
#include "transport/rank_view.hpp"

namespace hvd::detail {
namespace {

// The alignment of the host's fusion memory.
constexpr std::size_t kAlignment = 64;
// The time for which copies may still run after an error.
constexpr std::chrono::seconds kDrainTimeout{1};

std::int64_t sum(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

PinnedBackend::PinnedBackend(const GpuRank& self, Backend& host, std::unique_ptr<Copier> copier)
    : self_(self), host_(host), shared_(std::make_shared<Shared>()) {
  shared_->copier = std::move(copier);
}

PinnedBackend::PinnedBackend(const GpuRank& self, std::unique_ptr<Backend> host,
                             std::shared_ptr<Shared> shared)
    : self_(self), owned_host_(std::move(host)), host_(*owned_host_), shared_(std::move(shared)) {}

PinnedBackend::~PinnedBackend() {
  if (!shared_->resources) return;
  try {
    const DeviceGuard guard(self_.device);
    shared_.reset();
  } catch (const std::exception&) {
    // A destructor cannot report the error.
  }
}

bool PinnedBackend::supports(OpKind kind, Device device, DType dtype, ReduceOp op) const noexcept {
  return self_.owns(device) && host_.supports(kind, Device{}, dtype, op);
}

void PinnedBackend::after(DeviceEvent& ready, Deadline deadline) {
  if (ready.handle() == nullptr) return ready.wait(deadline);
  if (shared_->first_error) std::rethrow_exception(shared_->first_error);
  const DeviceGuard guard(self_.device);
  check(cudaStreamWaitEvent(own().stream.get(), static_cast<cudaEvent_t>(ready.handle()), 0),
        "cudaStreamWaitEvent");
}

void PinnedBackend::abort() noexcept {
  shared_->aborted.store(true, std::memory_order_release);
  host_.abort();
}

void PinnedBackend::run(std::string_view phase, Deadline deadline,
                        const std::function<void(Watch&)>& body) {
  if (shared_->first_error) std::rethrow_exception(shared_->first_error);
  const DeviceGuard guard(self_.device);
  copies_.clear();
  size_ = 0;
  try {
    Watch watch(deadline, shared_->aborted, phase, "the GPU");
    watch.check();
    body(watch);
  } catch (...) {
    shared_->first_error = std::current_exception();
    drain();
    throw;
  }
}

PinnedBackend::Resources& PinnedBackend::own() {
  if (!shared_->resources) shared_->resources.emplace();
  return *shared_->resources;
}

void PinnedBackend::drain() noexcept {
  if (!shared_->resources) return;
  const cudaStream_t stream = shared_->resources->stream.get();
  const Deadline deadline = Clock::now() + kDrainTimeout;
  while (cudaStreamQuery(stream) == cudaErrorNotReady && Clock::now() < deadline) {
    std::this_thread::yield();
  }
}

std::size_t PinnedBackend::allot(std::size_t bytes) {
  const std::size_t at = size_;
  size_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return at;
}

void PinnedBackend::begin() { memory_ = own().memory.reserve(size_); }

void PinnedBackend::copy(std::byte* dst, const std::byte* src, std::size_t size) {
  if (size > 0 && dst != nullptr && src != nullptr) copies_.push_back({dst, src, size});
}

void PinnedBackend::transfer(Watch& watch) {
  if (copies_.empty()) return;
  shared_->copier->run(copies_, {}, own().stream.get(), watch);
  copies_.clear();
  own().finished.record(own().stream.get());
  while (!own().finished.done()) watch.pause();
}

void PinnedBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  const std::size_t element = size_of(call.dtype);
  run("allreduce", deadline, [&](Watch& watch) {
    std::vector<std::size_t> offsets;
    for (const TensorSlice& tensor : call.tensors) {
      offsets.push_back(allot(static_cast<std::size_t>(tensor.count) * element));
    }
    begin();
    std::vector<TensorSlice> here;
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
      const TensorSlice& tensor = call.tensors[i];
      std::byte* const staged = at(offsets[i]);
      here.push_back({tensor.input == nullptr ? nullptr : staged,
                      tensor.output == nullptr ? nullptr : staged, tensor.count});
      copy(staged, tensor.input, static_cast<std::size_t>(tensor.count) * element);
    }
    transfer(watch);
    AllreduceCall host_call = call;
    host_call.tensors = here;
    host_call.device = {};
    host_.allreduce(host_call, deadline);
    for (std::size_t i = 0; i < here.size(); ++i) {
      copy(call.tensors[i].output, here[i].output,
           static_cast<std::size_t>(here[i].count) * element);
    }
    transfer(watch);
  });
}

void PinnedBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  const std::size_t element = size_of(call.dtype);
  run("broadcast", deadline, [&](Watch& watch) {
    std::vector<std::size_t> offsets;
    for (const TensorSlice& tensor : call.tensors) {
      offsets.push_back(allot(static_cast<std::size_t>(tensor.count) * element));
    }
    begin();
    std::vector<TensorSlice> here;
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
      const TensorSlice& tensor = call.tensors[i];
      std::byte* const staged = tensor.count == 0 ? nullptr : at(offsets[i]);
      here.push_back({staged, staged, tensor.count});
      if (self_.rank != call.root) continue;
      copy(staged, tensor.input, static_cast<std::size_t>(tensor.count) * element);
    }
    transfer(watch);
    host_.broadcast({here, {}, call.dtype, call.root}, deadline);
    for (std::size_t i = 0; i < here.size(); ++i) {
      copy(call.tensors[i].output, here[i].output,
           static_cast<std::size_t>(here[i].count) * element);
    }
    transfer(watch);
  });
}

void PinnedBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  const std::size_t element = size_of(call.dtype);
  const auto mine = [&](const GatherSlice& tensor) {
    return static_cast<std::size_t>(tensor.counts[static_cast<std::size_t>(self_.rank)]) * element;
  };
  const auto all = [&](const GatherSlice& tensor) {
    return static_cast<std::size_t>(sum(tensor.counts)) * element;
  };
  run("allgather", deadline, [&](Watch& watch) {
    std::vector<std::pair<std::size_t, std::size_t>> offsets;
    for (const GatherSlice& tensor : call.tensors) {
      const std::size_t input = allot(mine(tensor));
      offsets.emplace_back(input, allot(all(tensor)));
    }
    begin();
    std::vector<GatherSlice> here;
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
      here.push_back({at(offsets[i].first), at(offsets[i].second), call.tensors[i].counts});
      copy(at(offsets[i].first), call.tensors[i].input, mine(call.tensors[i]));
    }
    transfer(watch);
    host_.allgather({here, {}, call.dtype}, deadline);
    for (std::size_t i = 0; i < here.size(); ++i) {
      copy(call.tensors[i].output, here[i].output, all(call.tensors[i]));
    }
    transfer(watch);
  });
}

void PinnedBackend::reducescatter(const ReducescatterCall& call, Deadline deadline) {
  const std::size_t element = size_of(call.dtype);
  const auto mine = [&](const ScatterSlice& tensor) {
    return static_cast<std::size_t>(tensor.counts[static_cast<std::size_t>(self_.rank)]) * element;
  };
  const auto all = [&](const ScatterSlice& tensor) {
    return static_cast<std::size_t>(sum(tensor.counts)) * element;
  };
  run("reducescatter", deadline, [&](Watch& watch) {
    std::vector<std::pair<std::size_t, std::size_t>> offsets;
    for (const ScatterSlice& tensor : call.tensors) {
      const std::size_t input = allot(all(tensor));
      offsets.emplace_back(input, allot(mine(tensor)));
    }
    begin();
    std::vector<ScatterSlice> here;
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
      here.push_back({at(offsets[i].first), at(offsets[i].second), call.tensors[i].counts});
      copy(at(offsets[i].first), call.tensors[i].input, all(call.tensors[i]));
    }
    transfer(watch);
    ReducescatterCall host_call = call;
    host_call.tensors = here;
    host_call.device = {};
    host_.reducescatter(host_call, deadline);
    for (std::size_t i = 0; i < here.size(); ++i) {
      copy(call.tensors[i].output, here[i].output, mine(call.tensors[i]));
    }
    transfer(watch);
  });
}

void PinnedBackend::alltoall(const AlltoallCall& call, Deadline deadline) {
  const std::size_t element = size_of(call.dtype);
  const std::size_t sent = static_cast<std::size_t>(sum(call.send_counts)) * element;
  const std::size_t received = static_cast<std::size_t>(sum(call.receive_counts)) * element;
  run("alltoall", deadline, [&](Watch& watch) {
    const std::size_t input = allot(sent);
    const std::size_t output = allot(received);
    begin();
    copy(at(input), call.input, sent);
    transfer(watch);
    AlltoallCall host_call = call;
    host_call.input = at(input);
    host_call.output = at(output);
    host_call.device = {};
    host_.alltoall(host_call, deadline);
    copy(call.output, at(output), received);
    transfer(watch);
  });
}

void PinnedBackend::barrier(Deadline deadline) {
  run("barrier", deadline, [&](Watch&) { host_.barrier(deadline); });
}

std::unique_ptr<Backend> PinnedBackend::over(std::span<const int> ranks,
                                             std::unique_ptr<Backend> host) {
  const GpuRank self{rank_in_subset(ranks, self_.rank, self_.size), static_cast<int>(ranks.size()),
                     self_.device};
  return std::unique_ptr<Backend>(new PinnedBackend(self, std::move(host), shared_));
}

std::unique_ptr<Backend> PinnedBackend::subset(std::span<const int> ranks, Deadline deadline) {
  return over(ranks, host_.subset(ranks, deadline));
}

std::unique_ptr<Backend> PinnedBackend::split(std::span<const int> ranks, bool member,
                                              Deadline deadline) {
  auto host = host_.split(ranks, member, deadline);
  return host ? over(ranks, std::move(host)) : nullptr;
}

}  // namespace hvd::detail
