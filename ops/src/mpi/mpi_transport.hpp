// Moves bytes between ranks over MPI's messages. make_mpi_transport makes it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include <mpi.h>

#include <hvd/ops/internal/transport.hpp>

#include "fusion/buffer.hpp"
#include "mpi/mpi_comm.hpp"
#include "mpi/mpi_process.hpp"

namespace hvd::detail {

/// Follows one direction of an exchange, as segments that begin and finish in order. Some of them
/// are under way at a time.
class MpiSegments {
 public:
  static constexpr std::size_t kWindow = 4;  ///< segments under way at a time

  struct Segment {
    std::size_t offset = 0;  ///< in the message
    std::size_t size = 0;
    std::size_t slot = 0;  ///< below kWindow, and not that of another segment under way
  };

  /// `longest` is the size of all segments but the last.
  MpiSegments(std::size_t size, std::size_t longest) noexcept : size_(size), longest_(longest) {}

  [[nodiscard]] bool done() const noexcept { return finished_ == count(); }
  [[nodiscard]] bool can_begin() const noexcept {
    return begun_ < count() && begun_ - finished_ < kWindow;
  }
  /// Begins the next segment. The caller starts its message on `request(slot)`.
  [[nodiscard]] Segment begin() noexcept { return at(begun_++); }
  [[nodiscard]] MPI_Request* request(std::size_t slot) noexcept { return &requests_[slot]; }
  /// Returns the oldest segment under way if it is complete. Errors name `call`.
  [[nodiscard]] std::optional<Segment> take_finished(std::string_view call, const Watch& watch);

 private:
  [[nodiscard]] std::size_t count() const noexcept { return (size_ + longest_ - 1) / longest_; }
  [[nodiscard]] Segment at(std::size_t index) const noexcept;

  std::size_t size_;
  std::size_t longest_;
  std::size_t begun_ = 0;
  std::size_t finished_ = 0;
  std::array<MPI_Request, kWindow> requests_{};
};

struct MpiTransportOptions {
  /// The size of the segments into which a message is cut, in bytes; the same on all ranks. A sink
  /// consumes a segment while the next ones are under way. MPI counts the bytes in an int.
  std::size_t segment = std::size_t{256} << 10;
};

/// Uses MPI_Isend and MPI_Irecv and tests them until the deadline. MPI does not tell that a rank
/// has ended: the wait for it ends at the deadline, or by `abort`, which the coordinator calls when
/// heartbeats are missing.
class MpiTransport final : public Transport {
 public:
  /// Not collective. `use` and `comm` may be shared with an MpiBackend as long as one works at a
  /// time; an error or `abort` of one ends both.
  MpiTransport(std::shared_ptr<MpiUse> use, std::shared_ptr<const MpiComm> comm,
               const MpiTransportOptions& options = {});

  [[nodiscard]] std::string_view name() const noexcept override { return "mpi"; }
  [[nodiscard]] int rank() const noexcept override { return comm_->rank(); }
  [[nodiscard]] int size() const noexcept override { return comm_->size(); }
  void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) override;
  void abort() noexcept override { use_->abort(); }

 private:
  class Receiving;
  class Sending;

  /// Holds memory for segments where MPI must not get the caller's memory.
  struct Slots {
    FusionBuffer incoming;
    FusionBuffer outgoing;
  };

  void move(const Outgoing& out, const Incoming& in, Watch& watch);

  std::shared_ptr<MpiUse> use_;
  std::shared_ptr<const MpiComm> comm_;
  MpiTransportOptions options_;
  std::unique_ptr<Slots> slots_ = std::make_unique<Slots>();
};

}  // namespace hvd::detail
