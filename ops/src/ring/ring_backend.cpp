#include "ring/ring_backend.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/log.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "fusion/pack.hpp"
#include "transport/rank_view.hpp"

namespace hvd::detail {
namespace {

// Tensors of this size or more are reduced where they lie: copying one to and from fusion memory
// would cost more than a ring of its own.
constexpr std::size_t kAlone = std::size_t{128} << 10;

// Doubling is used where a rank receives fewer bytes than this by it.
constexpr std::size_t kDoublingBelow = (std::size_t{16} << 10) + 1;

/// Runs the allreduce of a single rank: its contribution is the result, times the factors.
void reduce_alone(const AllreduceCall& call, const Accumulator& accumulator) {
  for (const TensorSlice& tensor : call.tensors) {
    if (tensor.output == nullptr) continue;
    accumulator.load(tensor.output, tensor.input, tensor.count);
    accumulator.finish(tensor.output, tensor.count);
  }
}

/// Returns the host of each rank, which is host 0 for all of them where no hosts are given.
std::vector<int> of_each(std::vector<int> host_of, int ranks) {
  if (host_of.empty()) host_of.resize(static_cast<std::size_t>(ranks), 0);
  if (std::ssize(host_of) == ranks) return host_of;
  throw Error(Errc::invalid_argument,
              fmt::format("a ring of {} ranks and the hosts of {}", ranks, host_of.size()));
}

}  // namespace

RingBackend::RingBackend(std::unique_ptr<Transport> transport, std::vector<int> host_of)
    : RingBackend(std::move(transport), std::move(host_of), std::make_shared<Shared>()) {}

RingBackend::RingBackend(std::unique_ptr<Transport> transport, std::vector<int> host_of,
                         std::shared_ptr<Shared> shared)
    : transport_(std::move(transport)),
      host_of_(of_each(std::move(host_of), transport_->size())),
      order_(order_by_host(host_of_)),
      reordered_(order_.is_by_rank() ? nullptr
                                     : std::make_unique<RankView>(*transport_, order_.ranks)),
      plan_(plan_ring(around().rank(), transport_->size())),
      block_plan_(plan_ring(order_, transport_->rank())),
      shared_(std::move(shared)) {}

AlgorithmTable RingBackend::default_table() {
  return AlgorithmTable(Algorithm::doubling).from(kDoublingBelow, Algorithm::ring);
}

bool RingBackend::supports(OpKind kind, Device device, DType dtype, ReduceOp op) const noexcept {
  return device.kind == Device::Kind::cpu && (!reduces(kind) || can_reduce(dtype, op));
}

void RingBackend::abort() noexcept {
  shared_->failure.abort();
  transport_->abort();
}

std::unique_ptr<Backend> RingBackend::subset(std::span<const int> ranks, Deadline) {
  shared_->failure.check();
  static_cast<void>(rank_in_subset(ranks, transport_->rank(), size()));
  auto view = std::make_unique<RankView>(*transport_, std::vector<int>(ranks.begin(), ranks.end()));
  std::vector<int> host_of;
  for (const int rank : ranks) host_of.push_back(host_of_[static_cast<std::size_t>(rank)]);
  return std::unique_ptr<Backend>(new RingBackend(std::move(view), std::move(host_of), shared_));
}

void RingBackend::run(const Reduction& job, Deadline deadline) {
  const std::size_t received = job.bytes() * static_cast<std::size_t>(size() - 1);
  if (shared_->table.at(received) == Algorithm::doubling) {
    doubling_allreduce(around(), job, shared_->scratch, deadline);
  } else {
    ring_allreduce(around(), plan_, job, deadline);
  }
}

void RingBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  shared_->failure.check();
  if (call.tensors.size() == 1) return reduce_together(call, deadline);
  // The size alone decides, so that every rank does the same.
  std::vector<TensorSlice> small;
  AllreduceCall part = call;
  for (const TensorSlice& tensor : call.tensors) {
    if (bytes_of(tensor.count, call.dtype) < kAlone) {
      small.push_back(tensor);
      continue;
    }
    part.tensors = {&tensor, 1};
    reduce_together(part, deadline);
  }
  part.tensors = small;
  if (!small.empty()) reduce_together(part, deadline);
}

void RingBackend::reduce_together(const AllreduceCall& call, Deadline deadline) {
  const Arithmetic arithmetic = Arithmetic::of(call, size());
  const Accumulator accumulator(arithmetic);
  if (size() == 1 && arithmetic.divisor == 1) return reduce_alone(call, accumulator);
  const FusionLayout layout = layout_of(call.tensors, size());
  if (layout.total() == 0) return;

  Reduction job{.elements = accumulator, .bounds = layout.bounds()};
  if (is_lone(call.tensors) &&
      !accumulator.widened()) {  // the result goes straight into the output
    const TensorSlice& tensor = call.tensors.front();
    job.own = tensor.input;
    job.result = tensor.output;
    if (call.prescale != 1.0) {
      accumulator.load(tensor.output, tensor.input, tensor.count);
      job.own = tensor.output;
    }
    return run(job, deadline);
  }
  job.result = shared_->fused.reserve(job.bytes());
  job.own = job.result;
  observed(call.observer, &CallObserver::copied_in,
           [&] { pack(call.tensors, layout, accumulator, job.result); });
  run(job, deadline);
  observed(call.observer, &CallObserver::copied_out,
           [&] { unpack(call.tensors, layout, accumulator, job.result); });
}

void RingBackend::reducescatter(const ReducescatterCall& call, Deadline deadline) {
  shared_->failure.check();
  const ScatterBlocks blocks(call.tensors, size());
  if (blocks.total() == 0) return;
  const Accumulator accumulator(Arithmetic::of(call, size()));
  Reduction job{.elements = accumulator, .bounds = blocks.bounds()};
  if (call.tensors.size() == 1 && accumulator.as_given()) {
    job.own = call.tensors.front().input;
    job.result = call.tensors.front().output;
    return ring_reduce_scatter(*transport_, block_plan_, job, shared_->scratch, deadline);
  }
  const int rank = transport_->rank();
  std::byte* const fused = shared_->fused.reserve(job.bytes());
  job.own = fused;
  job.result = fused + job.offset(rank);
  pack(call.tensors, blocks, accumulator, fused);
  ring_reduce_scatter(*transport_, block_plan_, job, shared_->scratch, deadline);
  unpack(call.tensors, blocks, rank, accumulator, job.result);
}

Staging RingBackend::staging() {
  return {.copy = copy_bytes,
          .reserve = [this](std::size_t size) { return shared_->fused.reserve(size); }};
}

void RingBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  shared_->failure.check();
  staged_allgather(call, transport_->rank(), size(), staging(), [&](auto* data, auto bounds) {
    ring_all_gather(*transport_, block_plan_, data, bounds, 1, deadline);
  });
}

void RingBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  shared_->failure.check();
  const int root = order_.positions[static_cast<std::size_t>(call.root)];
  staged_broadcast(call, transport_->rank(), staging(), [&](std::byte* data, std::size_t size) {
    broadcast_bytes(around(), data, size, root, deadline);
  });
}

void RingBackend::alltoall(const AlltoallCall& call, Deadline deadline) {
  shared_->failure.check();
  pairwise_all_to_all(*transport_, call, deadline);
}

void RingBackend::barrier(Deadline deadline) {
  shared_->failure.check();
  dissemination_barrier(around(), deadline);
}

std::unique_ptr<Backend> make_ring_backend(std::unique_ptr<Transport> transport,
                                           std::vector<int> host_of) {
  if (log_enabled(LogLevel::plan)) {
    log(LogLevel::plan, transport->rank(),
        fmt::format("host memory: ring over {}, doubling when small", transport->name()));
  }
  return std::make_unique<RingBackend>(std::move(transport), std::move(host_of));
}

}  // namespace hvd::detail

namespace hvd {

std::unique_ptr<Backend> make_ring_backend(std::unique_ptr<Transport> transport) {
  return detail::make_ring_backend(std::move(transport), {});
}

}  // namespace hvd
