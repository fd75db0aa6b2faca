#include "mpi/mpi_exchange.hpp"

#include <algorithm>

#include "mpi/mpi_error.hpp"

namespace hvd {

void exchange_pieces(const MpiComm& comm, const MpiExchange& job, std::size_t max_piece,
                     Watch& watch) {
  const std::size_t longest = std::max(job.out.size(), job.in.size());
  for (std::size_t begin = 0; begin < longest; begin += max_piece) {
    const auto piece = [&](auto bytes) {
      const std::size_t at = std::min(begin, bytes.size());
      return bytes.subspan(at, std::min(max_piece, bytes.size() - at));
    };
    const std::span<std::byte> in = piece(job.in);
    const std::span<const std::byte> out = piece(job.out);
    MPI_Request receiving = MPI_REQUEST_NULL;
    MPI_Request sending = MPI_REQUEST_NULL;
    if (!in.empty()) {
      check_mpi(MPI_Irecv(in.data(), static_cast<int>(in.size()), MPI_BYTE, job.from, kExchangeTag,
                          comm.get(), &receiving),
                "MPI_Irecv", watch);
    }
    if (!out.empty()) {
      check_mpi(MPI_Isend(out.data(), static_cast<int>(out.size()), MPI_BYTE, job.to, kExchangeTag,
                          comm.get(), &sending),
                "MPI_Isend", watch);
    }
    complete(receiving, "MPI_Irecv", watch);
    complete(sending, "MPI_Isend", watch);
  }
}

}  // namespace hvd
