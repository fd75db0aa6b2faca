#include "mpi/mpi_transport.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "mpi/mpi_comm.hpp"

namespace hvd::detail {
namespace {

/// Returns the error of MPI or of the watch with the peer that was waited for.
Error about_peer(const Error& error, int peer) {
  Fault fault = error.fault();
  fault.rank = peer;
  return Error(error.code(), std::move(fault));
}

bool concerns_peer(const Error& error) {
  return error.code() == Errc::timeout || error.code() == Errc::peer_lost;
}

}  // namespace

/// Receives one segment after the other, directly into their destination or through slots.
class MpiTransport::Receiving {
 public:
  Receiving(MpiTransport& transport, const Incoming& in)
      : comm_(*transport.comm_),
        in_(in),
        segment_(transport.options_.segment),
        segments_(in.peer < 0 ? 0 : in.size, segment_) {
    if (done()) return;
    FusionBuffer& slots = transport.slots_->incoming;
    const bool lend = !transport.use_->shared_with_program();
    if (in.into != nullptr && lend) {
      straight_ = in.into;
    } else if (in.into == nullptr && segment_ % in.granularity != 0) {
      straight_ =
          slots.reserve(in.size);  // a segment would cut elements, so the sink gets all at once
    } else {
      slots_ = slots.reserve(std::min(in.size, MpiSegments::kWindow * segment_));
    }
  }

  [[nodiscard]] bool done() const noexcept { return segments_.done(); }

  /// Returns whether a segment began or ended.
  bool step(const Watch& watch) {
    bool moved = false;
    while (segments_.can_begin()) {
      const auto segment = segments_.begin();
      check_mpi(MPI_Irecv(memory_of(segment), static_cast<int>(segment.size), MPI_BYTE, in_.peer,
                          kTransportTag, comm_.get(), segments_.request(segment.slot)),
                "MPI_Irecv", watch);
      moved = true;
    }
    if (const auto segment = segments_.take_finished("MPI_Irecv", watch)) {
      consume(*segment);
      moved = true;
    }
    return moved;
  }

 private:
  [[nodiscard]] std::byte* memory_of(const MpiSegments::Segment& segment) const noexcept {
    return straight_ != nullptr ? straight_ + segment.offset : slots_ + segment.slot * segment_;
  }

  void consume(const MpiSegments::Segment& segment) {
    const std::byte* const bytes = memory_of(segment);
    if (in_.into != nullptr) {
      if (straight_ == nullptr) std::memcpy(in_.into + segment.offset, bytes, segment.size);
    } else if (straight_ == nullptr) {
      in_.sink(segment.offset, {bytes, segment.size});
    } else if (segments_.done()) {
      in_.sink(0, {straight_, in_.size});
    }
  }

  const MpiComm& comm_;
  const Incoming& in_;
  std::size_t segment_;
  MpiSegments segments_;
  std::byte* straight_ = nullptr;
  std::byte* slots_ = nullptr;
};

class MpiTransport::Sending {
 public:
  Sending(MpiTransport& transport, const Outgoing& out)
      : comm_(*transport.comm_),
        out_(out),
        segment_(transport.options_.segment),
        segments_(out.peer < 0 ? 0 : out.bytes.size(), segment_) {
    if (done() || !transport.use_->shared_with_program()) return;
    slots_ = transport.slots_->outgoing.reserve(
        std::min(out.bytes.size(), MpiSegments::kWindow * segment_));
  }

  [[nodiscard]] bool done() const noexcept { return segments_.done(); }

  /// Returns whether a segment began or ended.
  bool step(const Watch& watch) {
    bool moved = false;
    while (segments_.can_begin()) {
      const auto segment = segments_.begin();
      check_mpi(MPI_Isend(bytes_of(segment), static_cast<int>(segment.size), MPI_BYTE, out_.peer,
                          kTransportTag, comm_.get(), segments_.request(segment.slot)),
                "MPI_Isend", watch);
      moved = true;
    }
    while (segments_.take_finished("MPI_Isend", watch)) moved = true;
    return moved;
  }

 private:
  [[nodiscard]] const std::byte* bytes_of(const MpiSegments::Segment& segment) const noexcept {
    const std::byte* const bytes = out_.bytes.data() + segment.offset;
    if (slots_ == nullptr) return bytes;
    std::byte* const slot = slots_ + segment.slot * segment_;
    std::memcpy(slot, bytes, segment.size);
    return slot;
  }

  const MpiComm& comm_;
  const Outgoing& out_;
  std::size_t segment_;
  MpiSegments segments_;
  std::byte* slots_ = nullptr;
};

MpiSegments::Segment MpiSegments::at(std::size_t index) const noexcept {
  const std::size_t offset = index * longest_;
  return {.offset = offset, .size = std::min(longest_, size_ - offset), .slot = index % kWindow};
}

std::optional<MpiSegments::Segment> MpiSegments::take_finished(std::string_view call,
                                                               const Watch& watch) {
  if (finished_ == begun_) return std::nullopt;
  const Segment oldest = at(finished_);
  int complete = 0;
  check_mpi(MPI_Test(request(oldest.slot), &complete, MPI_STATUS_IGNORE), call, watch);
  if (complete == 0) return std::nullopt;
  ++finished_;
  return oldest;
}

MpiTransport::MpiTransport(std::shared_ptr<MpiUse> use, std::shared_ptr<const MpiComm> comm,
                           const MpiTransportOptions& options)
    : use_(std::move(use)), comm_(std::move(comm)), options_(options) {
  options_.segment = std::min<std::size_t>(options.segment, std::numeric_limits<int>::max());
}

void MpiTransport::exchange(const Outgoing& out, const Incoming& in, Deadline deadline) {
  try {
    use_->guard([&] {
      Watch watch(deadline, use_->abort_flag(), "exchange", "MPI");
      move(out, in, watch);
    });
  } catch (...) {
    // MPI may still write to this memory, so it is never freed.
    static_cast<void>(slots_.release());
    throw;
  }
}

void MpiTransport::move(const Outgoing& out, const Incoming& in, Watch& watch) {
  Receiving receiving(*this, in);
  Sending sending(*this, out);
  int peer = -1;  // the rank that an error concerns
  try {
    while (!receiving.done() || !sending.done()) {
      peer = in.peer;
      const bool received = receiving.step(watch);
      peer = out.peer;
      const bool sent = sending.step(watch);
      if (received || sent) continue;
      if (!receiving.done()) peer = in.peer;
      watch.pause();
    }
  } catch (const Error& error) {
    if (!concerns_peer(error)) throw;
    throw about_peer(error, peer);
  }
}

}  // namespace hvd::detail
