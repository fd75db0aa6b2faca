// Ranks of one host: each owns the memory that the others write their messages to.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/session.hpp>
#include <hvd/ops/transport.hpp>

#include "group/rank_view.hpp"
#include "transport/backoff.hpp"
#include "transport/failure.hpp"
#include "transport/futex.hpp"
#include "transport/host_meeting.hpp"
#include "transport/shm_ring.hpp"
#include "transport/shm_segment.hpp"

namespace hvd {
namespace {

/// The longest sleep before looking whether the peers are still there.
constexpr std::chrono::milliseconds kNap{50};

/// All that one rank keeps about another.
struct Peer {
  int rank = -1;
  UniqueFd stream;     ///< carries nothing after start-up; its end is the peer's end
  ShmSegment segment;  ///< the peer's memory
  ShmWriter out;       ///< our ring in it
  ShmReader in;        ///< its ring in ours

  [[nodiscard]] bool gone() const { return stream_ended(stream.get()); }
  /// After publishing something that the peer may wait for.
  void notify() const noexcept {
    ShmDoorbell& bell = segment.doorbell();
    if (bell.sleeping.load(std::memory_order_seq_cst) == 0) return;
    bell.rings.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(bell.rings);
  }
};

class ShmTransport final : public Transport {
 public:
  ShmTransport(Session& session, std::span<const int> ranks);

  [[nodiscard]] std::string_view name() const noexcept override { return "shm"; }
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return layout_.ranks(); }

  void exchange(const Outgoing& out, const Incoming& in, Deadline deadline) override {
    failure_.guard([&] { run(out, in, deadline); });
  }

  void abort() noexcept override {
    failure_.abort();
    ShmDoorbell& bell = own_.doorbell();
    bell.rings.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(bell.rings);
  }

 private:
  /// What is left of the exchange in progress.
  struct Progress {
    Peer* to = nullptr;
    std::span<const std::byte> unsent;
    Peer* from = nullptr;
    std::size_t received = 0;
    std::size_t expected = 0;

    [[nodiscard]] bool sent_all() const noexcept { return unsent.empty(); }
    [[nodiscard]] bool received_all() const noexcept { return received == expected; }
    [[nodiscard]] bool possible() const {
      return (!sent_all() && to->out.room() > 0) || (!received_all() && from->in.available() > 0);
    }
  };

  void run(const Outgoing& out, const Incoming& in, Deadline deadline);
  static bool send_some(Progress& progress);
  static bool receive_some(Progress& progress, const Incoming& in);
  static void check(const Progress& progress, Deadline deadline);
  void sleep(const Progress& progress, Deadline deadline);

  [[nodiscard]] Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

  int rank_;
  ShmLayout layout_;
  ShmSegment own_;
  std::vector<Peer> peers_;  ///< by rank
  int spins_;
  Failure failure_;
};

ShmTransport::ShmTransport(Session& session, std::span<const int> ranks)
    : rank_(session.topology().rank),
      layout_(session.topology().size),
      own_(ShmSegment::create(layout_, rank_)),
      peers_(static_cast<std::size_t>(layout_.ranks())),
      spins_(spins_for(static_cast<int>(ranks.size()))) {
  std::vector<HostPeer> met = meet_on_host(session, ranks, "shm", own_.fd());
  for (const int other : ranks) {
    if (other == rank_) continue;
    HostPeer& found = met[static_cast<std::size_t>(other)];
    Peer& to = peer(other);
    to.rank = other;
    to.stream = std::move(found.stream);
    to.segment = ShmSegment::attach(std::move(found.memory), layout_, other);
    to.out = ShmWriter(to.segment.counters(layout_, other, rank_),
                       to.segment.data(layout_, other, rank_), other);
    to.in =
        ShmReader(own_.counters(layout_, rank_, other), own_.data(layout_, rank_, other), other);
  }
}

void ShmTransport::run(const Outgoing& out, const Incoming& in, Deadline deadline) {
  Progress progress;
  if (out.peer >= 0 && !out.bytes.empty()) {
    progress.to = &peer(out.peer);
    progress.unsent = out.bytes;
  }
  if (in.peer >= 0 && in.size > 0) {
    progress.from = &peer(in.peer);
    progress.expected = in.size;
    if (in.into == nullptr && (in.granularity == 0 || kShmUnit % in.granularity != 0)) {
      throw Error(Errc::invalid_argument, fmt::format("granularity of {} bytes", in.granularity));
    }
  }
  Backoff backoff(spins_);
  unsigned idle = 0;
  while (!progress.sent_all() || !progress.received_all()) {
    const bool sent = send_some(progress);
    const bool received = receive_some(progress, in);
    if (sent || received) {
      backoff.reset();
      continue;
    }
    failure_.check();
    // Now and then, also while bytes trickle in too fast for a sleep.
    if (++idle % 64 == 0) check(progress, deadline);
    if (!backoff.pause()) sleep(progress, deadline);
  }
}

bool ShmTransport::send_some(Progress& progress) {
  if (progress.sent_all()) return false;
  const std::size_t size = progress.to->out.write(progress.unsent);
  if (size == 0) return false;
  progress.unsent = progress.unsent.subspan(size);
  progress.to->notify();
  return true;
}

bool ShmTransport::receive_some(Progress& progress, const Incoming& in) {
  if (progress.received_all()) return false;
  ShmReader& ring = progress.from->in;
  const std::span<const std::byte> piece = ring.peek(progress.expected - progress.received);
  if (piece.empty()) return false;
  if (in.into != nullptr) {
    std::memcpy(in.into + progress.received, piece.data(), piece.size());
  } else {
    in.sink(progress.received, piece);
  }
  progress.received += piece.size();
  ring.release(piece.size());
  progress.from->notify();
  return true;
}

void ShmTransport::check(const Progress& progress, Deadline deadline) {
  if (Clock::now() < deadline) return;
  throw progress.received_all() ? peer_timeout(progress.to->rank, "takes no bytes")
                                : peer_timeout(progress.from->rank, "sends no bytes");
}

void ShmTransport::sleep(const Progress& progress, Deadline deadline) {
  check(progress, deadline);
  ShmDoorbell& bell = own_.doorbell();
  const std::uint32_t heard = bell.rings.load(std::memory_order_seq_cst);
  bell.sleeping.store(1, std::memory_order_seq_cst);
  // Again, now that the peers know: what came before would not ring.
  if (!progress.possible() && !failure_.aborted()) {
    futex_wait(bell.rings, heard, std::min(deadline, Clock::now() + kNap));
  }
  bell.sleeping.store(0, std::memory_order_seq_cst);
  if (progress.possible()) return;

  const Peer* lost = nullptr;
  if (!progress.sent_all() && progress.to->gone()) lost = progress.to;
  if (!progress.received_all() && progress.from->gone()) lost = progress.from;
  // What a peer wrote before it left is still good.
  if (lost == nullptr || progress.possible()) return;
  throw peer_lost(lost->rank, "closed its connection");
}

}  // namespace

std::unique_ptr<Transport> make_shm_transport(Session& session, std::vector<int> ranks) {
  auto transport = std::make_unique<ShmTransport>(session, ranks);
  if (std::ssize(ranks) == transport->size()) return transport;
  return std::make_unique<RankView>(std::move(transport), std::move(ranks));
}

std::unique_ptr<Transport> make_shm_transport(Session& session) {
  std::vector<int> everybody(static_cast<std::size_t>(session.topology().size));
  std::iota(everybody.begin(), everybody.end(), 0);
  return make_shm_transport(session, std::move(everybody));
}

}  // namespace hvd
