#include "mpi/mpi_backend.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "fusion/blocks.hpp"
#include "fusion/pack.hpp"
#include "mpi/mpi_comm.hpp"
#include "transport/rank_view.hpp"

namespace hvd::detail {

MpiBackend::MpiBackend(std::shared_ptr<MpiUse> use, std::shared_ptr<const MpiComm> comm,
                       const MpiOptions& options)
    : shared_(std::make_shared<Shared>()), comm_(std::move(comm)) {
  shared_->options.max_piece =
      std::min<std::size_t>(options.max_piece, std::numeric_limits<int>::max());
  shared_->use = std::move(use);
}

MpiBackend::MpiBackend(std::shared_ptr<Shared> shared, std::shared_ptr<const MpiComm> comm)
    : shared_(std::move(shared)), comm_(std::move(comm)) {}

bool MpiBackend::supports(OpKind, Device device, DType, ReduceOp) const noexcept {
  return device.kind == Device::Kind::cpu;
}

void MpiBackend::abort() noexcept { shared_->use->abort(); }

void MpiBackend::run(std::string_view phase, Deadline deadline,
                     const std::function<void(Watch&)>& body) {
  try {
    shared_->use->guard([&] {
      Watch watch(deadline, shared_->use->abort_flag(), phase, "MPI");
      watch.check();
      body(watch);
    });
  } catch (...) {
    // MPI may still write to this memory, so it is never freed.
    static_cast<void>(shared_->buffers.release());
    throw;
  }
}

Staging MpiBackend::staging() {
  return {.copy = copy_bytes,
          .reserve = [this](std::size_t size) { return shared_->buffers->fused.reserve(size); },
          .lone_in_place = may_lend()};
}

std::unique_ptr<Backend> MpiBackend::subset(std::span<const int> ranks, Deadline deadline) {
  static_cast<void>(rank_in_subset(ranks, comm_->rank(), comm_->size()));
  std::shared_ptr<const MpiComm> members;
  run("subset", deadline,
      [&](Watch& watch) { members = std::make_shared<const MpiComm>(*comm_, ranks, watch); });
  return std::unique_ptr<Backend>(new MpiBackend(shared_, std::move(members)));
}

void MpiBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  const std::int64_t total = total_count(call.tensors);
  if (total == 0) return;
  const Accumulator accumulator(Arithmetic::of(call, comm_->size()));
  run("allreduce", deadline, [&](Watch& watch) {
    if (is_lone(call.tensors) && !accumulator.widened() && may_lend()) {
      const TensorSlice& tensor = call.tensors.front();
      accumulator.load(tensor.output, tensor.input, total);
      reduce_pieces(tensor.output, total, accumulator, watch);
      accumulator.finish(tensor.output, total);
      return;
    }
    const FusionLayout layout = layout_of(call.tensors, comm_->size());
    std::byte* const fused = shared_->buffers->fused.reserve(static_cast<std::size_t>(total) *
                                                             accumulator.element_size());
    observed(call.observer, &CallObserver::copied_in,
             [&] { pack(call.tensors, layout, accumulator, fused); });
    reduce_pieces(fused, total, accumulator, watch);
    accumulator.finish(fused, total);
    observed(call.observer, &CallObserver::copied_out,
             [&] { unpack(call.tensors, layout, accumulator, fused); });
  });
}

void MpiBackend::reducescatter(const ReducescatterCall& call, Deadline deadline) {
  const ScatterBlocks blocks(call.tensors, comm_->size());
  if (blocks.total() == 0) return;
  const Accumulator accumulator(Arithmetic::of(call, comm_->size()));
  const std::int64_t count = blocks.block(comm_->rank()).size();
  run("reducescatter", deadline, [&](Watch& watch) {
    if (call.tensors.size() == 1 && accumulator.as_given() && may_lend()) {
      const ScatterSlice& tensor = call.tensors.front();
      scatter_pieces(tensor.input, tensor.output, blocks.bounds(), accumulator, watch);
      accumulator.finish(tensor.output, count);
      return;
    }
    const std::size_t element = accumulator.element_size();
    std::byte* const fused =
        shared_->buffers->fused.reserve(static_cast<std::size_t>(blocks.total()) * element);
    std::byte* const own =
        shared_->buffers->received.reserve(static_cast<std::size_t>(count) * element);
    pack(call.tensors, blocks, accumulator, fused);
    scatter_pieces(fused, own, blocks.bounds(), accumulator, watch);
    accumulator.finish(own, count);
    unpack(call.tensors, blocks, comm_->rank(), accumulator, own);
  });
}

void MpiBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  if (total_count(call.tensors) == 0) return;
  run("broadcast", deadline, [&](Watch& watch) {
    staged_broadcast(call, comm_->rank(), staging(), [&](std::byte* data, std::size_t size) {
      broadcast_pieces(data, size, call.root, watch);
    });
  });
}

void MpiBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  run("allgather", deadline, [&](Watch& watch) {
    staged_allgather(call, comm_->rank(), comm_->size(), staging(),
                     [&](auto* data, auto bounds) { gather_pieces(data, bounds, watch); });
  });
}

void MpiBackend::alltoall(const AlltoallCall& call, Deadline deadline) {
  run("alltoall", deadline, [&](Watch& watch) {
    if (may_lend()) return exchange_parts(call, call.input, call.output, watch);
    const std::size_t sent = byte_offsets(call.send_counts, call.dtype).back();
    const std::size_t received = byte_offsets(call.receive_counts, call.dtype).back();
    std::byte* const from = shared_->buffers->fused.reserve(sent);
    std::byte* const to = shared_->buffers->received.reserve(received);
    copy_bytes(from, call.input, sent);
    exchange_parts(call, from, to, watch);
    copy_bytes(call.output, to, received);
  });
}

void MpiBackend::barrier(Deadline deadline) {
  run("barrier", deadline, [&](Watch& watch) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(comm_->get(), &request), "MPI_Ibarrier", watch);
    complete(request, "MPI_Ibarrier", watch);
  });
}

}  // namespace hvd::detail
