#include "nccl/pinned_backend.hpp"

#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "fusion/buffer.hpp"
#include "nccl/cuda.hpp"

namespace hvd::detail {
namespace {

// The time for which copies may still run after an error.
constexpr std::chrono::seconds kDrainTimeout{1};

// A stage, except the last one, has at least these bytes, for which a copy takes much longer than
// its launch. A tensor is in one stage as a whole, since the order of a sum may depend on the size.
constexpr std::size_t kStageBytes = std::size_t{4} << 20;

/// Returns the size of `counts` elements in all.
std::size_t all_bytes(std::span<const std::int64_t> counts, DType dtype) {
  return bytes_of(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), dtype);
}

void wait_for(const CudaEvent& event, Watch& watch) {
  while (!event.done()) watch.pause();
}

/// Consecutive parts of a call, from `begin` to before `end`.
struct Stage {
  std::size_t begin;
  std::size_t end;
};

/// Divides the parts into stages of `least` bytes or more.
template <class Parts>
std::vector<Stage> stages_of(const Parts& parts, std::size_t least) {
  std::vector<Stage> stages;
  std::size_t begin = 0;
  std::size_t bytes = 0;
  for (std::size_t end = 1; end <= parts.size(); ++end) {
    bytes += parts[end - 1].input_bytes;
    if (bytes < least && end < parts.size()) continue;
    stages.push_back({begin, end});
    begin = end;
    bytes = 0;
  }
  return stages;
}

/// Returns those tensors of a call that begin at `first`, with their memory replaced by that of
/// `parts`.
template <class Tensor, class Parts>
std::vector<Tensor> over_parts(std::span<const Tensor> tensors, const Parts& parts,
                               std::size_t first) {
  const auto own = tensors.subspan(first, parts.size());
  std::vector<Tensor> replaced(own.begin(), own.end());
  for (std::size_t i = 0; i < replaced.size(); ++i) {
    replaced[i].input = parts[i].input;
    replaced[i].output = parts[i].output;
  }
  return replaced;
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
  // A stream that stands still would keep this thread in cudaFreeHost.
  if (shared_.use_count() == 1) destroy_in_background(std::move(shared_), self_.gpu.index());
}

bool PinnedBackend::supports(OpKind kind, Device device, DType dtype, ReduceOp op) const noexcept {
  return host_.supports(kind, Device{}, dtype, op) && self_.owns(device);
}

void PinnedBackend::after(DeviceEvent& ready, Deadline deadline) {
  if (ready.handle() == nullptr) return ready.wait(deadline);
  shared_->failure.guard([&] {
    const DeviceGuard guard(self_.gpu.index());
    check(cudaStreamWaitEvent(own().stream.get(), static_cast<cudaEvent_t>(ready.handle()), 0),
          "cudaStreamWaitEvent");
  });
}

void PinnedBackend::abort() noexcept {
  shared_->failure.abort();
  host_.abort();
}

void PinnedBackend::run(std::string_view phase, Deadline deadline,
                        const std::function<void(Watch&)>& body) {
  shared_->failure.guard([&] {
    copies_.clear();
    size_ = 0;
    try {
      const DeviceGuard guard(self_.gpu.index());
      Watch watch(deadline, shared_->failure.abort_flag(), phase, "the GPU");
      watch.check();
      body(watch);
    } catch (...) {
      drain();
      throw;
    }
  });
}

std::size_t PinnedBackend::own_bytes(std::span<const std::int64_t> counts, DType dtype) const {
  return bytes_of(counts[static_cast<std::size_t>(self_.rank)], dtype);
}

PinnedBackend::Resources& PinnedBackend::own() {
  if (!shared_->resources) {
    shared_->copier->load();
    shared_->resources.emplace();
  }
  return *shared_->resources;
}

void PinnedBackend::drain() noexcept {
  if (!shared_->resources) return;
  shared_->resources->stream.drain(Clock::now() + kDrainTimeout);
}

std::size_t PinnedBackend::allot(std::size_t bytes) {
  const std::size_t at = size_;
  size_ += FusionBuffer::aligned(bytes);
  return at;
}

void PinnedBackend::begin() { memory_ = own().memory.reserve(size_); }

void PinnedBackend::copy(std::byte* dst, const std::byte* src, std::size_t size) {
  if (size > 0 && dst != nullptr && src != nullptr) copies_.push_back({dst, src, size});
}

void PinnedBackend::queue_copies(const ElementOp& element_op, CudaEvent& event, Watch& watch) {
  if (!copies_.empty()) shared_->copier->run(copies_, element_op, own().stream.get(), watch);
  copies_.clear();
  event.record(own().stream.get());
}

void PinnedBackend::through_host(std::string_view phase, std::span<const Part> parts, bool in_place,
                                 Deadline deadline, const OnHost& collective,
                                 std::optional<DType> f32_of) {
  ElementOp in;
  ElementOp out;
  if (f32_of) {
    in = {.dtype = *f32_of, .f32_source = true};
    out = {.dtype = *f32_of, .f32_destination = true};
  }
  run(phase, deadline, [&](Watch& watch) {
    std::vector<std::pair<std::size_t, std::size_t>> offsets;
    for (const Part& part : parts) {
      const std::size_t input = allot(part.input_bytes);
      offsets.emplace_back(input, in_place ? input : allot(part.output_bytes));
    }
    begin();
    std::vector<Part> pinned(parts.begin(), parts.end());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].input != nullptr) pinned[i].input = at(offsets[i].first);
      if (parts[i].output != nullptr) pinned[i].output = at(offsets[i].second);
    }
    const std::vector<Stage> stages =
        stages_of(parts, in_place ? kStageBytes : std::numeric_limits<std::size_t>::max());
    const auto queue_inputs = [&](std::size_t number) {
      for (std::size_t i = stages[number].begin; i < stages[number].end; ++i) {
        copy(at(offsets[i].first), parts[i].input, parts[i].input_bytes);
      }
      queue_copies(in, own().arrived[number % 2], watch);
    };
    for (std::size_t number = 0; number < stages.size(); ++number) {
      if (number == 0) queue_inputs(0);
      if (number + 1 < stages.size()) queue_inputs(number + 1);
      wait_for(own().arrived[number % 2], watch);
      const auto [begin, end] = stages[number];
      collective(std::span(pinned).subspan(begin, end - begin), begin);
      for (std::size_t i = begin; i < end; ++i) {
        copy(parts[i].output, pinned[i].output, parts[i].output_bytes);
      }
      queue_copies(out, own().finished, watch);
    }
    wait_for(own().finished, watch);
  });
}

void PinnedBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  std::vector<Part> parts;
  for (const TensorSlice& tensor : call.tensors) {
    const std::size_t bytes = bytes_of(tensor.count, call.dtype);
    parts.push_back({tensor.input, bytes, tensor.output, bytes});
  }
  const auto reduce = [&](std::span<const Part> pinned, std::size_t first) {
    const auto tensors = over_parts(call.tensors, pinned, first);
    AllreduceCall on_host = call;
    on_host.tensors = tensors;
    on_host.device = {};
    on_host.f32_memory = false;
    host_.allreduce(on_host, deadline);
  };
  std::optional<DType> f32_of;
  if (call.f32_memory) f32_of = call.dtype;
  through_host("allreduce", parts, true, deadline, reduce, f32_of);
}

void PinnedBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  std::vector<Part> parts;
  for (const TensorSlice& tensor : call.tensors) {
    const std::size_t bytes = bytes_of(tensor.count, call.dtype);
    const bool sends = self_.rank == call.root;
    parts.push_back({sends ? tensor.input : nullptr, bytes, tensor.output, bytes});
  }
  const auto send = [&](std::span<const Part> pinned, std::size_t first) {
    std::vector<TensorSlice> tensors;
    for (std::size_t i = 0; i < pinned.size(); ++i) {
      tensors.push_back({pinned[i].output, pinned[i].output, call.tensors[first + i].count});
    }
    host_.broadcast({tensors, {}, call.dtype, call.root}, deadline);
  };
  through_host("broadcast", parts, true, deadline, send);
}

void PinnedBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  std::vector<Part> parts;
  for (const GatherSlice& tensor : call.tensors) {
    parts.push_back({tensor.input, own_bytes(tensor.counts, call.dtype), tensor.output,
                     all_bytes(tensor.counts, call.dtype)});
  }
  through_host("allgather", parts, false, deadline, [&](std::span<const Part> pinned, std::size_t) {
    const auto tensors = over_parts(call.tensors, pinned, 0);
    host_.allgather({tensors, {}, call.dtype}, deadline);
  });
}

void PinnedBackend::reducescatter(const ReducescatterCall& call, Deadline deadline) {
  std::vector<Part> parts;
  for (const ScatterSlice& tensor : call.tensors) {
    parts.push_back({tensor.input, all_bytes(tensor.counts, call.dtype), tensor.output,
                     own_bytes(tensor.counts, call.dtype)});
  }
  const auto reduce = [&](std::span<const Part> pinned, std::size_t) {
    const auto tensors = over_parts(call.tensors, pinned, 0);
    ReducescatterCall on_host = call;
    on_host.tensors = tensors;
    on_host.device = {};
    host_.reducescatter(on_host, deadline);
  };
  through_host("reducescatter", parts, false, deadline, reduce);
}

void PinnedBackend::alltoall(const AlltoallCall& call, Deadline deadline) {
  const Part part{call.input, all_bytes(call.send_counts, call.dtype), call.output,
                  all_bytes(call.receive_counts, call.dtype)};
  const auto exchange = [&](std::span<const Part> pinned, std::size_t) {
    AlltoallCall on_host = call;
    on_host.input = pinned.front().input;
    on_host.output = pinned.front().output;
    on_host.device = {};
    host_.alltoall(on_host, deadline);
  };
  through_host("alltoall", {&part, 1}, false, deadline, exchange);
}

void PinnedBackend::barrier(Deadline deadline) {
  run("barrier", deadline, [&](Watch&) { host_.barrier(deadline); });
}

std::unique_ptr<Backend> PinnedBackend::subset(std::span<const int> ranks, Deadline deadline) {
  return std::unique_ptr<Backend>(
      new PinnedBackend(self_.in(ranks), host_.subset(ranks, deadline), shared_));
}

}  // namespace hvd::detail
