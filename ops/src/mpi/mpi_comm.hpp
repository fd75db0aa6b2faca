// Wraps MPI's communicators and errors as types, and moves bytes from one rank to another.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <mpi.h>

#include "polling/watch.hpp"

namespace hvd::detail {

inline constexpr int kExchangeTag = 0;
inline constexpr int kSubsetTag = 1;
inline constexpr int kTransportTag = 2;

/// Throws MPI's error with its text: Errc::resource, Errc::internal for a wrong call, and otherwise
/// Errc::peer_lost (MPI does not say which peer). `call` names the function.
void check_mpi(int result, std::string_view call, const Watch& watch);

/// Owns a communicator whose error handler returns errors.
class MpiComm {
 public:
  /// Duplicates `parent`. Collective; bounded by `watch`.
  MpiComm(MPI_Comm parent, Watch& watch);
  /// Makes a communicator of some ranks of `parent`, which are ascending and include this one.
  /// Collective among these. MPI has no call for it that could be given up, so all wait for each
  /// other first, bounded by `watch`.
  MpiComm(const MpiComm& parent, std::span<const int> ranks, Watch& watch);
  ~MpiComm();
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

 private:
  void set_up(const Watch& watch);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

/// Tests until `request` is complete. The memory of the call must stay when this throws, because
/// MPI cannot take back a collective.
void complete(MPI_Request request, std::string_view call, Watch& watch);

struct MpiExchange {
  int to = 0;
  std::span<const std::byte> out;
  int from = 0;
  std::span<std::byte> in;
};

/// Sends and receives at the same time, in messages of at most `max_piece` bytes, on which both
/// sides must agree. Either may be empty. After an error MPI keeps the memory.
void exchange_pieces(const MpiComm& comm, const MpiExchange& job, std::size_t max_piece,
                     Watch& watch);

}  // namespace hvd::detail
