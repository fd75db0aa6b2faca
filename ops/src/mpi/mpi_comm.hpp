// An owned communicator, on which errors return.
#pragma once

#include <span>
#include <string_view>

#include <mpi.h>

#include "polling/watch.hpp"

namespace hvd {

class MpiComm {
 public:
  /// A duplicate. Collective; bounded by `watch`.
  MpiComm(MPI_Comm parent, Watch& watch);
  /// Among some ranks of `parent`, ascending, this one among them. Collective among these. MPI has
  /// no call for it that could be given up, so all first meet, bounded by `watch`.
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

/// Tests until `request` is complete. What the call reads and writes must stay when this throws:
/// MPI cannot take back a collective.
void complete(MPI_Request request, std::string_view call, Watch& watch);

}  // namespace hvd
