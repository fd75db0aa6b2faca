#include "mpi/mpi_chosen_backend.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "fusion/staging.hpp"

namespace hvd::detail {
namespace {

// The most used operation comes first; see docs/internals/backends.md.
constexpr std::array kSizes{
    CallSize{OpKind::allreduce, 256},         CallSize{OpKind::allreduce, 8 * kKi},
    CallSize{OpKind::allreduce, 128 * kKi},   CallSize{OpKind::allreduce, 1024 * kKi},
    CallSize{OpKind::broadcast, 8 * kKi},     CallSize{OpKind::allgather, 8 * kKi},
    CallSize{OpKind::reducescatter, 8 * kKi}, CallSize{OpKind::broadcast, 256 * kKi},
    CallSize{OpKind::allgather, 256 * kKi},   CallSize{OpKind::reducescatter, 256 * kKi},
    CallSize{OpKind::allreduce, 4096 * kKi},
};

constexpr std::array kKinds{OpKind::allreduce, OpKind::allgather, OpKind::broadcast,
                            OpKind::reducescatter};

AlgorithmTable mpis_own() { return AlgorithmTable(Algorithm::collective); }

/// Returns the bytes of tensors that have a count for each rank.
template <class Slice>
std::size_t total_bytes(std::span<const Slice> tensors, DType dtype) {
  std::int64_t total = 0;
  for (const Slice& tensor : tensors) {
    total = std::accumulate(tensor.counts.begin(), tensor.counts.end(), total);
  }
  return bytes_of(total, dtype);
}

std::size_t total_bytes(std::span<const TensorSlice> tensors, DType dtype) {
  return bytes_of(total_count(tensors), dtype);
}

}  // namespace

MpiTables::MpiTables(const AlgorithmPlan& plan)
    : tables_{mpis_own(), mpis_own(), mpis_own(), mpis_own()} {
  for (std::size_t i = 0; i < kKinds.size(); ++i)
    tables_[i] = plan.of(AlgorithmPlan::mpi(kKinds[i]), mpis_own());
}

Algorithm MpiTables::of(OpKind kind, std::size_t bytes) const noexcept {
  const auto found = std::find(kKinds.begin(), kKinds.end(), kind);
  if (found == kKinds.end()) return Algorithm::collective;
  return tables_[static_cast<std::size_t>(found - kKinds.begin())].at(bytes);
}

std::vector<Timing> measure_mpi(Backend& collective, Backend& ring, const Measurement& options) {
  const std::array<CandidateBackend, 2> contenders{[&]() -> Backend& { return collective; },
                                                   [&]() -> Backend& { return ring; }};
  return measure(contenders, kSizes, options);
}

AlgorithmPlan mpi_plan(std::span<const Timing> timings) {
  AlgorithmPlan plan;
  for (const OpKind kind : kKinds) {
    plan.set(AlgorithmPlan::mpi(kind), choose(kind, timings, kMpiCandidates, mpis_own()));
  }
  return plan;
}

MpiChosenBackend::MpiChosenBackend(std::unique_ptr<Backend> collective,
                                   std::unique_ptr<Backend> ring, MpiTables tables)
    : collective_(std::move(collective)), ring_(std::move(ring)), tables_(std::move(tables)) {}

bool MpiChosenBackend::supports(OpKind kind, Device device, DType dtype,
                                ReduceOp op) const noexcept {
  return collective_->supports(kind, device, dtype, op);
}

Backend& MpiChosenBackend::pick(OpKind kind, std::size_t bytes, DType dtype, ReduceOp op) {
  const bool to_ring =
      tables_.of(kind, bytes) == Algorithm::ring && ring_->supports(kind, {}, dtype, op);
  return to_ring ? *ring_ : *collective_;
}

void MpiChosenBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  const std::size_t bytes = total_bytes(call.tensors, call.dtype);
  pick(OpKind::allreduce, bytes, call.dtype, call.op).allreduce(call, deadline);
}

void MpiChosenBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  const std::size_t bytes = total_bytes(call.tensors, call.dtype);
  pick(OpKind::allgather, bytes, call.dtype, {}).allgather(call, deadline);
}

void MpiChosenBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  const std::size_t bytes = total_bytes(call.tensors, call.dtype);
  pick(OpKind::broadcast, bytes, call.dtype, {}).broadcast(call, deadline);
}

void MpiChosenBackend::reducescatter(const ReducescatterCall& call, Deadline deadline) {
  const std::size_t bytes = total_bytes(call.tensors, call.dtype);
  pick(OpKind::reducescatter, bytes, call.dtype, call.op).reducescatter(call, deadline);
}

void MpiChosenBackend::alltoall(const AlltoallCall& call, Deadline deadline) {
  collective_->alltoall(call, deadline);
}

void MpiChosenBackend::barrier(Deadline deadline) { collective_->barrier(deadline); }

std::unique_ptr<Backend> MpiChosenBackend::subset(std::span<const int> ranks, Deadline deadline) {
  auto collective = collective_->subset(ranks, deadline);
  auto ring = ring_->subset(ranks, deadline);
  return std::make_unique<MpiChosenBackend>(std::move(collective), std::move(ring), tables_);
}

void MpiChosenBackend::abort() noexcept {
  collective_->abort();
  ring_->abort();
}

}  // namespace hvd::detail
