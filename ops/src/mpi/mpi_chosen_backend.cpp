#include "mpi/mpi_chosen_backend.hpp"

#include <numeric>
#include <utility>

#include "fusion/staging.hpp"

namespace hvd {
namespace {

/// Of tensors that have a count for each rank.
template <class Slice>
std::size_t total_bytes(std::span<const Slice> tensors, DType dtype) {
  std::int64_t total = 0;
  for (const Slice& tensor : tensors) {
    total = std::accumulate(tensor.counts.begin(), tensor.counts.end(), total);
  }
  return static_cast<std::size_t>(total) * size_of(dtype);
}

std::size_t total_bytes(std::span<const TensorSlice> tensors, DType dtype) {
  return static_cast<std::size_t>(total_count(tensors)) * size_of(dtype);
}

}  // namespace

MpiChosenBackend::MpiChosenBackend(std::unique_ptr<Backend> collective,
                                   std::unique_ptr<Backend> ring, const MpiWays& ways)
    : MpiChosenBackend(std::move(collective), std::move(ring), std::make_shared<Shared>()) {
  shared_->ways = ways;
}

MpiChosenBackend::MpiChosenBackend(std::unique_ptr<Backend> collective,
                                   std::unique_ptr<Backend> ring, std::shared_ptr<Shared> shared)
    : collective_(std::move(collective)), ring_(std::move(ring)), shared_(std::move(shared)) {}

bool MpiChosenBackend::supports(OpKind kind, Device device, DType dtype,
                                ReduceOp op) const noexcept {
  return collective_->supports(kind, device, dtype, op);
}

void MpiChosenBackend::run(const std::function<void()>& body) {
  if (shared_->first_error) std::rethrow_exception(shared_->first_error);
  try {
    body();
  } catch (const Error& error) {
    if (error.code() == Errc::invalid_argument) throw;  // nothing was begun
    shared_->first_error = std::current_exception();
    throw;
  }
}

Backend& MpiChosenBackend::pick(OpKind kind, std::size_t bytes, DType dtype, ReduceOp op) {
  const bool to_ring =
      shared_->ways.of(kind, bytes) == Way::ring && ring_->supports(kind, {}, dtype, op);
  return to_ring ? *ring_ : *collective_;
}

void MpiChosenBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  const std::size_t bytes = total_bytes(call.tensors, call.dtype);
  run([&] { pick(OpKind::allreduce, bytes, call.dtype, call.op).allreduce(call, deadline); });
}

void MpiChosenBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  const std::size_t bytes = total_bytes(call.tensors, call.dtype);
  run([&] { pick(OpKind::allgather, bytes, call.dtype, {}).allgather(call, deadline); });
}

void MpiChosenBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  const std::size_t bytes = total_bytes(call.tensors, call.dtype);
  run([&] { pick(OpKind::broadcast, bytes, call.dtype, {}).broadcast(call, deadline); });
}

void MpiChosenBackend::reducescatter(const ReducescatterCall& call, Deadline deadline) {
  const std::size_t bytes = total_bytes(call.tensors, call.dtype);
  run([&] {
    pick(OpKind::reducescatter, bytes, call.dtype, call.op).reducescatter(call, deadline);
  });
}

void MpiChosenBackend::alltoall(const AlltoallCall& call, Deadline deadline) {
  run([&] { collective_->alltoall(call, deadline); });
}

void MpiChosenBackend::barrier(Deadline deadline) {
  run([&] { collective_->barrier(deadline); });
}

std::unique_ptr<Backend> MpiChosenBackend::subset(std::span<const int> ranks, Deadline deadline) {
  std::unique_ptr<Backend> made;
  run([&] {
    auto collective = collective_->subset(ranks, deadline);
    auto ring = ring_->subset(ranks, deadline);
    made.reset(new MpiChosenBackend(std::move(collective), std::move(ring), shared_));
  });
  return made;
}

void MpiChosenBackend::abort() noexcept {
  collective_->abort();
  ring_->abort();
}

}  // namespace hvd
