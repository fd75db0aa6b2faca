// Contains the MPI backend's calls of MPI, in pieces whose size fits an int.
#include <algorithm>
#include <vector>

#include "fusion/blocks.hpp"
#include "mpi/mpi_backend.hpp"
#include "mpi/mpi_comm.hpp"

namespace hvd::detail {
namespace {

/// Calls fn(offset, int count) for pieces of at most `most`.
template <class Fn>
void for_each_piece(std::int64_t count, std::size_t most, Fn fn) {
  const auto step = static_cast<std::int64_t>(most);
  for (std::int64_t begin = 0; begin < count; begin += step) {
    fn(begin, static_cast<int>(std::min(step, count - begin)));
  }
}

struct Lengths {
  std::vector<int> counts;
  std::vector<int> offsets;
};

/// Part r goes from `bounds[r]` to `bounds[r + 1]`, in units of `per_unit` MPI elements. Returns
/// the counts and offsets of all parts in elements, as MPI wants them. The caller makes sure that
/// each fits an int.
Lengths lengths_of(std::span<const std::int64_t> bounds, int per_unit) {
  Lengths lengths;
  for (std::size_t r = 0; r + 1 < bounds.size(); ++r) {
    lengths.counts.push_back(static_cast<int>(bounds[r + 1] - bounds[r]) * per_unit);
    lengths.offsets.push_back(static_cast<int>(bounds[r]) * per_unit);
  }
  return lengths;
}

}  // namespace

void MpiBackend::reduce_pieces(std::byte* data, std::int64_t count, const Accumulator& elements,
                               Watch& watch) {
  const auto value = static_cast<std::int64_t>(size_of(elements.dtype()));
  for_each_piece(count * elements.lanes(), shared_->options.max_piece / size_of(elements.dtype()),
                 [&](std::int64_t begin, int piece) {
                   MPI_Request request = MPI_REQUEST_NULL;
                   check_mpi(MPI_Iallreduce(MPI_IN_PLACE, data + begin * value, piece,
                                            mpi_type(elements.dtype()),
                                            shared_->reductions.op(elements.dtype(), elements.op()),
                                            comm_->get(), &request),
                             "MPI_Iallreduce", watch);
                   complete(request, "MPI_Iallreduce", watch);
                 });
}

void MpiBackend::scatter_pieces(const std::byte* src, std::byte* dst,
                                std::span<const std::int64_t> bounds, const Accumulator& elements,
                                Watch& watch) {
  const MPI_Datatype type = mpi_type(elements.dtype());
  const MPI_Op op = shared_->reductions.op(elements.dtype(), elements.op());
  const auto value = static_cast<std::int64_t>(size_of(elements.dtype()));
  const std::size_t total = static_cast<std::size_t>(bounds.back()) * elements.element_size();
  const auto reduce_scatter = [&](const std::byte* from, std::byte* to,
                                  const std::vector<int>& counts) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ireduce_scatter(from, to, counts.data(), type, op, comm_->get(), &request),
              "MPI_Ireduce_scatter", watch);
    complete(request, "MPI_Ireduce_scatter", watch);
  };
  if (total <= shared_->options.max_piece) {
    return reduce_scatter(src, dst, lengths_of(bounds, elements.lanes()).counts);
  }
  // The counts do not fit an int, so every rank's block is reduced by itself. MPI_Ireduce would
  // take thousands of steps for it in Open MPI.
  std::vector<int> counts(bounds.size() - 1);
  for (std::size_t r = 0; r < counts.size(); ++r) {
    const std::byte* const block = src + bounds[r] * elements.lanes() * value;
    for_each_piece(
        (bounds[r + 1] - bounds[r]) * elements.lanes(),
        shared_->options.max_piece / size_of(elements.dtype()), [&](std::int64_t begin, int piece) {
          const bool own = static_cast<int>(r) == comm_->rank();
          counts[r] = piece;
          reduce_scatter(block + begin * value, own ? dst + begin * value : nullptr, counts);
        });
    counts[r] = 0;
  }
}

void MpiBackend::broadcast_pieces(std::byte* data, std::size_t size, int root, Watch& watch) {
  for_each_piece(static_cast<std::int64_t>(size), shared_->options.max_piece,
                 [&](std::int64_t begin, int piece) {
                   MPI_Request request = MPI_REQUEST_NULL;
                   check_mpi(
                       MPI_Ibcast(data + begin, piece, MPI_BYTE, root, comm_->get(), &request),
                       "MPI_Ibcast", watch);
                   complete(request, "MPI_Ibcast", watch);
                 });
}

void MpiBackend::gather_pieces(std::byte* data, std::span<const std::int64_t> bounds,
                               Watch& watch) {
  if (static_cast<std::size_t>(bounds.back()) > shared_->options.max_piece) {
    // The counts do not fit an int, so every rank sends its part to all others.
    for (int rank = 0; rank < comm_->size(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      broadcast_pieces(data + bounds[r], static_cast<std::size_t>(bounds[r + 1] - bounds[r]), rank,
                       watch);
    }
    return;
  }
  const Lengths lengths = lengths_of(bounds, 1);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, data, lengths.counts.data(),
                            lengths.offsets.data(), MPI_BYTE, comm_->get(), &request),
            "MPI_Iallgatherv", watch);
  complete(request, "MPI_Iallgatherv", watch);
}

void MpiBackend::exchange_parts(const AlltoallCall& call, const std::byte* input, std::byte* output,
                                Watch& watch) {
  const std::vector<std::size_t> sends = byte_offsets(call.send_counts, call.dtype);
  const std::vector<std::size_t> receives = byte_offsets(call.receive_counts, call.dtype);
  const auto me = static_cast<std::size_t>(comm_->rank());
  const auto size = static_cast<std::size_t>(comm_->size());
  copy_bytes(output + receives[me], input + sends[me], sends[me + 1] - sends[me]);
  for (std::size_t distance = 1; distance < size; ++distance) {
    const std::size_t to = (me + distance) % size;
    const std::size_t from = (me + size - distance) % size;
    exchange_pieces(*comm_,
                    {.to = static_cast<int>(to),
                     .out = {input + sends[to], sends[to + 1] - sends[to]},
                     .from = static_cast<int>(from),
                     .in = {output + receives[from], receives[from + 1] - receives[from]}},
                    shared_->options.max_piece, watch);
  }
}

}  // namespace hvd::detail
