// Bytes between ranks over MPI's messages: the real thing behind make_mpi_transport.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include <hvd/ops/transport.hpp>

#include "fusion/buffer.hpp"
#include "mpi/mpi_comm.hpp"
#include "mpi/mpi_process.hpp"
#include "mpi/mpi_segments.hpp"
#include "transport/failure.hpp"

namespace hvd {

struct MpiTransportOptions {
  /// A message is cut into segments of so many bytes, the same number on all ranks: what a sink
  /// consumes while the next ones are under way, and less than MPI can count.
  std::size_t segment = std::size_t{256} << 10;
};

/// MPI_Isend and MPI_Irecv, tested against the deadline. MPI does not say when a rank has left:
/// such a wait ends by `abort`, which the coordinator calls when heartbeats stay out, or at the
/// deadline.
class MpiTransport final : public Transport {
 public:
  /// Not collective. `comm` may be shared with an MpiBackend as long as one works at a time.
  MpiTransport(std::shared_ptr<MpiUse> use, std::shared_ptr<const MpiComm> comm,
               const MpiTransportOptions& options = {});

  [[nodiscard]] std::string_view name() const noexcept override { return "mpi"; }
  [[nodiscard]] int rank() const noexcept override { return comm_->rank(); }
  [[nodiscard]] int size() const noexcept override { return comm_->size(); }
  void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) override;
  void abort() noexcept override;

 private:
  class Receiving;
  class Sending;

  /// Where segments are when the caller's memory is not lent to MPI.
  struct Slots {
    FusionBuffer incoming;
    FusionBuffer outgoing;
  };

  void move(const Outgoing& out, const Incoming& in, Watch& watch);

  std::shared_ptr<MpiUse> use_;
  std::shared_ptr<const MpiComm> comm_;
  MpiTransportOptions options_;
  std::atomic<bool> aborted_{false};
  Failure failure_;
  std::unique_ptr<Slots> slots_ = std::make_unique<Slots>();
};

}  // namespace hvd
