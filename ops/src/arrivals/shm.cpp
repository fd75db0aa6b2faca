// Ranks of one host: each has its line in memory of its own, which the others can only read.
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include <hvd/core/session.hpp>
#include <hvd/ops/arrivals.hpp>

#include "arrivals/board.hpp"
#include "transport/failure.hpp"
#include "transport/host_meeting.hpp"
#include "transport/sealed_memory.hpp"

namespace hvd {
namespace {

constexpr std::uint64_t kMagic = 0x3176'6972'7261'6468;  // "hdarriv1"

struct Segment {
  std::uint64_t magic = kMagic;
  std::uint32_t ranks = 0;
  std::uint32_t owner = 0;
  ArrivalLine line;
};

SealedMemory create_segment(int rank, int size) {
  SealedMemory memory = SealedMemory::create("hvd-arrivals", sizeof(Segment), PeerAccess::read);
  auto* const segment = new (memory.data()) Segment;
  segment->ranks = static_cast<std::uint32_t>(size);
  segment->owner = static_cast<std::uint32_t>(rank);
  return memory;
}

Segment& in(const SealedMemory& memory) {
  return *std::launder(reinterpret_cast<Segment*>(memory.data()));
}

SealedMemory attach_segment(UniqueFd fd, int owner, int size) {
  SealedMemory memory =
      SealedMemory::attach(std::move(fd), sizeof(Segment), owner, PeerAccess::read);
  const Segment& found = in(memory);
  if (found.magic != kMagic || found.owner != static_cast<std::uint32_t>(owner) ||
      found.ranks != static_cast<std::uint32_t>(size)) {
    throw peer_violation(owner, "shared memory refused: it is something else");
  }
  return memory;
}

}  // namespace

std::unique_ptr<Arrivals> make_shm_arrivals(Session& session) {
  const int rank = session.topology().rank;
  const int size = session.topology().size;

  auto memories = std::make_shared<std::vector<SealedMemory>>(static_cast<std::size_t>(size));
  SealedMemory& own = (*memories)[static_cast<std::size_t>(rank)];
  own = create_segment(rank, size);
  Board board;
  board.rank = rank;
  board.own = &in(own).line;
  board.peers.resize(static_cast<std::size_t>(size));

  std::vector<int> everybody(static_cast<std::size_t>(size));
  std::iota(everybody.begin(), everybody.end(), 0);
  std::vector<HostPeer> met = meet_on_host(session, everybody, "arrivals", own.fd());
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    HostPeer& found = met[static_cast<std::size_t>(other)];
    SealedMemory& memory = (*memories)[static_cast<std::size_t>(other)];
    memory = attach_segment(std::move(found.memory), other, size);
    BoardPeer& peer = board.peers[static_cast<std::size_t>(other)];
    peer.line = &in(memory).line;
    peer.stream = std::move(found.stream);
  }
  board.memory = std::move(memories);
  return make_board_arrivals(std::move(board));
}

}  // namespace hvd
