// Bytes from one rank to another over MPI.
#pragma once

#include <cstddef>
#include <span>

#include "mpi/mpi_comm.hpp"

namespace hvd {

inline constexpr int kExchangeTag = 0;
inline constexpr int kSubsetTag = 1;
inline constexpr int kTransportTag = 2;

struct MpiExchange {
  int to = 0;
  std::span<const std::byte> out;
  int from = 0;
  std::span<std::byte> in;
};

/// Sends and receives at the same time, at most `max_piece` bytes a message, as both sides must
/// agree. Either may be empty. After an error MPI keeps the memory.
void exchange_pieces(const MpiComm& comm, const MpiExchange& job, std::size_t max_piece,
                     Watch& watch);

}  // namespace hvd
