// An owned duplicate of a communicator, on which errors return.
#pragma once

#include <mpi.h>

#include "polling/watch.hpp"

namespace hvd {

class MpiComm {
 public:
  /// Collective; bounded by `watch`.
  MpiComm(MPI_Comm parent, Watch& watch);
  ~MpiComm();
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

/// Tests until `request` is complete. What the call reads and writes must stay when this throws:
/// MPI cannot take back a collective.
void complete(MPI_Request request, std::string_view call, Watch& watch);

}  // namespace hvd
