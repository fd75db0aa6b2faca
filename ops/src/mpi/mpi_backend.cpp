#include "mpi/mpi_backend.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "fusion/pack.hpp"
#include "mpi/mpi_error.hpp"
#include "reduce/scale.hpp"

namespace hvd {
namespace {

constexpr std::string_view kEngine = "MPI";

void copy_bytes(std::byte* dst, const std::byte* src, std::size_t size) {
  if (size > 0 && dst != src) std::memcpy(dst, src, size);
}

std::int64_t total_count(std::span<const TensorSlice> tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0},
                         [](std::int64_t sum, const TensorSlice& t) { return sum + t.count; });
}

bool is_floating(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

/// The division of an average and the postscale, on reduced data. A widened mean gets both in
/// `unpack`.
void finish(const AllreduceCall& call, std::byte* data, std::int64_t count, int ranks) {
  if (call.op == ReduceOp::average && is_floating(call.dtype)) {
    finish_average(call.dtype, data, count, ranks, call.postscale);
  } else if (call.postscale != 1.0) {
    scale(call.dtype, data, data, count, call.postscale);
  }
}

}  // namespace

MpiBackend::MpiBackend(std::unique_ptr<MpiUse> use, MPI_Comm parent, Deadline deadline,
                       const MpiOptions& options)
    : options_(options), use_(std::move(use)) {
  options_.max_piece = std::min<std::size_t>(options_.max_piece, std::numeric_limits<int>::max());
  Watch watch(deadline, aborted_, "init", kEngine);
  try {
    comm_ = std::make_unique<MpiComm>(parent, watch);
  } catch (...) {
    use_->mark_failed();
    throw;
  }
}

MpiBackend::~MpiBackend() = default;

bool MpiBackend::supports(OpKind, Device device, DType, ReduceOp) const noexcept {
  return device.kind == Device::Kind::cpu;
}

void MpiBackend::abort() noexcept { aborted_.store(true, std::memory_order_release); }

void MpiBackend::run(std::string_view phase, Deadline deadline,
                     const std::function<void(Watch&)>& body) {
  if (first_error_) std::rethrow_exception(first_error_);
  try {
    Watch watch(deadline, aborted_, phase, kEngine);
    watch.check();
    body(watch);
  } catch (...) {
    first_error_ = std::current_exception();
    use_->mark_failed();
    // MPI may still write there: left to it for good.
    static_cast<void>(buffers_.release());
    throw;
  }
}

void MpiBackend::reduce_pieces(const std::byte* src, std::byte* data, std::int64_t count,
                               DType dtype, ReduceOp op, Watch& watch) {
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t most = static_cast<std::int64_t>(options_.max_piece) / element;
  for (std::int64_t begin = 0; begin < count; begin += most) {
    const std::int64_t piece = std::min(most, count - begin);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(src == data ? MPI_IN_PLACE : src + begin * element,
                             data + begin * element, static_cast<int>(piece), mpi_type(dtype),
                             reductions_.op(dtype, op), comm_->get(), &request),
              "MPI_Iallreduce", watch);
    complete(request, "MPI_Iallreduce", watch);
  }
}

void MpiBackend::allreduce(const AllreduceCall& call, Deadline deadline) {
  const std::int64_t total = total_count(call.tensors);
  if (total == 0) return;
  const Accumulator accumulator = Accumulator::of(call);
  run("allreduce", deadline, [&](Watch& watch) {
    const int ranks = comm_->size();
    if (call.tensors.size() == 1 && !accumulator.widened && may_lend()) {
      const TensorSlice& tensor = call.tensors.front();
      const std::byte* src = tensor.input;
      if (call.prescale != 1.0) {
        scale(call.dtype, tensor.output, tensor.input, total, call.prescale);
        src = tensor.output;
      }
      reduce_pieces(src, tensor.output, total, call.dtype, call.op, watch);
      finish(call, tensor.output, total, ranks);
      return;
    }
    const FusionLayout layout = layout_of(call.tensors, ranks);
    std::byte* const fused =
        buffers_->fused.reserve(static_cast<std::size_t>(total) * accumulator.element_size());
    pack(call, layout, accumulator, ranks, fused);
    reduce_pieces(fused, fused, total * accumulator.lanes, accumulator.dtype, call.op, watch);
    if (!accumulator.widened) finish(call, fused, total, ranks);
    unpack(call, layout, accumulator, ranks, fused);
  });
}

void MpiBackend::broadcast_pieces(std::byte* data, std::size_t size, int root, Watch& watch) {
  for (std::size_t begin = 0; begin < size; begin += options_.max_piece) {
    const std::size_t piece = std::min(options_.max_piece, size - begin);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(
        MPI_Ibcast(data + begin, static_cast<int>(piece), MPI_BYTE, root, comm_->get(), &request),
        "MPI_Ibcast", watch);
    complete(request, "MPI_Ibcast", watch);
  }
}

void MpiBackend::broadcast(const BroadcastCall& call, Deadline deadline) {
  const std::size_t element = size_of(call.dtype);
  const auto bytes = [&](const TensorSlice& tensor) {
    return static_cast<std::size_t>(tensor.count) * element;
  };
  const std::size_t total = static_cast<std::size_t>(total_count(call.tensors)) * element;
  if (total == 0) return;
  run("broadcast", deadline, [&](Watch& watch) {
    const bool root = comm_->rank() == call.root;
    if (root) {
      for (const TensorSlice& tensor : call.tensors) {
        copy_bytes(tensor.output, tensor.input, bytes(tensor));
      }
    }
    if (call.tensors.size() == 1 && may_lend()) {
      broadcast_pieces(call.tensors.front().output, total, call.root, watch);
      return;
    }
    std::byte* const fused = buffers_->fused.reserve(total);
    std::byte* at = fused;
    for (const TensorSlice& tensor : call.tensors) {
      if (root) copy_bytes(at, tensor.output, bytes(tensor));
      at += bytes(tensor);
    }
    broadcast_pieces(fused, total, call.root, watch);
    if (root) return;
    at = fused;
    for (const TensorSlice& tensor : call.tensors) {
      copy_bytes(tensor.output, at, bytes(tensor));
      at += bytes(tensor);
    }
  });
}

void MpiBackend::gather_pieces(const std::byte* src, std::byte* dst,
                               const std::vector<std::size_t>& sizes, Watch& watch) {
  const auto me = static_cast<std::size_t>(comm_->rank());
  const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  if (total > options_.max_piece) {
    // Too much for MPI's counts: every rank sends its part to all.
    std::size_t offset = 0;
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      if (rank == me) copy_bytes(dst + offset, src, sizes[rank]);
      broadcast_pieces(dst + offset, sizes[rank], static_cast<int>(rank), watch);
      offset += sizes[rank];
    }
    return;
  }
  std::vector<int> counts;
  std::vector<int> offsets;
  int offset = 0;
  for (const std::size_t size : sizes) {
    counts.push_back(static_cast<int>(size));
    offsets.push_back(offset);
    offset += static_cast<int>(size);
  }
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgatherv(src, counts[me], MPI_BYTE, dst, counts.data(), offsets.data(), MPI_BYTE,
                            comm_->get(), &request),
            "MPI_Iallgatherv", watch);
  complete(request, "MPI_Iallgatherv", watch);
}

void MpiBackend::allgather(const AllgatherCall& call, Deadline deadline) {
  const std::size_t element = size_of(call.dtype);
  const auto ranks = static_cast<std::size_t>(comm_->size());
  const auto me = static_cast<std::size_t>(comm_->rank());
  const auto bytes = [&](const GatherSlice& tensor, std::size_t rank) {
    return static_cast<std::size_t>(tensor.counts[rank]) * element;
  };
  std::vector<std::size_t> sizes(ranks, 0);  // contributed by each rank, all tensors
  for (const GatherSlice& tensor : call.tensors) {
    for (std::size_t rank = 0; rank < ranks; ++rank) sizes[rank] += bytes(tensor, rank);
  }
  const std::size_t total = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  if (total == 0) return;
  run("allgather", deadline, [&](Watch& watch) {
    if (call.tensors.size() == 1 && may_lend()) {
      gather_pieces(call.tensors.front().input, call.tensors.front().output, sizes, watch);
      return;
    }
    std::byte* const fused = buffers_->fused.reserve(std::max<std::size_t>(sizes[me], 1));
    std::byte* const gathered = buffers_->gathered.reserve(total);
    std::byte* to = fused;
    for (const GatherSlice& tensor : call.tensors) {
      copy_bytes(to, tensor.input, bytes(tensor, me));
      to += bytes(tensor, me);
    }
    gather_pieces(fused, gathered, sizes, watch);
    // From "by rank, then tensor" to "by tensor, then rank".
    std::vector<std::size_t> written(call.tensors.size(), 0);
    const std::byte* from = gathered;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const std::size_t size = bytes(call.tensors[i], rank);
        copy_bytes(call.tensors[i].output + written[i], from, size);
        written[i] += size;
        from += size;
      }
    }
  });
}

void MpiBackend::barrier(Deadline deadline) {
  run("barrier", deadline, [&](Watch& watch) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(comm_->get(), &request), "MPI_Ibarrier", watch);
    complete(request, "MPI_Ibarrier", watch);
  });
}

}  // namespace hvd
