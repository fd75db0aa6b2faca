// The ranks of one host meet and map each other's memory.
#include <algorithm>
#include <bitset>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/log.hpp>
#include <hvd/core/session.hpp>
#include <hvd/ops/backends.hpp>

#include "host/host_backend.hpp"
#include "transport/backoff.hpp"
#include "transport/host_meeting.hpp"

namespace hvd {
namespace {

/// What an allreduce of which size does.
std::string bands(int ranks) {
  return fmt::format(
      "host allreduce: up to {} KiB in one turn; in the arena directly, out of place past the "
      "cache from {} KiB on; else through slots, up to {} KiB in one chunk that every rank "
      "reduces, beyond in chunks of {} KiB, of which each reduces a part",
      HostGroup::kSmall >> 10, (kHostStreamed / static_cast<std::size_t>(ranks)) >> 10,
      StagedAllreduce::kWhole >> 10, HostSlots::kChunk >> 10);
}

}  // namespace

HostEngine make_host_engine(Session& session) {
  const int rank = session.topology().rank;
  const int size = session.topology().size;
  std::vector<int> ranks = ranks_here(session.topology());
  const int here = static_cast<int>(ranks.size());
  const std::size_t arena = arena_size_for(session.config().arena_size, here);
  auto own = std::make_shared<const HostSegment>(HostSegment::create(rank, size, arena));

  std::vector<HostPeer> met = meet_on_host(session, ranks, "host", own->memory().fd());
  std::vector<HostShared::Peer> peers(static_cast<std::size_t>(size));
  auto cpus = own->cpus();
  for (const int other : ranks) {
    if (other == rank) continue;
    const auto index = static_cast<std::size_t>(other);
    peers[index].segment = HostSegment::attach(std::move(met[index].memory), other, size);
    peers[index].stream = std::move(met[index].stream);
    cpus |= peers[index].segment.cpus();
  }
  const int spins = spins_for(here, static_cast<int>(cpus.count()));

  auto shared = std::make_shared<HostShared>(std::move(own), std::move(peers), rank, spins);
  std::vector<HostMember> members;
  for (const int other : ranks) {
    members.push_back(shared->member(other, HostSegment::block()));
  }
  const auto place = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  auto group =
      std::make_shared<HostGroup>(std::move(members), static_cast<int>(place), shared->waiting);
  if (log_enabled(LogLevel::plan)) {
    log(LogLevel::plan, rank,
        fmt::format("host memory: {} MiB of arena per rank, {} cores for {} ranks: {}", arena >> 20,
                    cpus.count(), here, spins > 0 ? "spin, yield, sleep" : "yield, sleep"));
    log(LogLevel::plan, rank, bands(here));
  }
  auto others = make_ring_backend(make_shm_transport(session, ranks));
  HostEngine engine;
  engine.arena = shared->arena;
  engine.backend = std::make_unique<HostBackend>(std::move(shared), std::move(group),
                                                 std::move(ranks), std::move(others));
  return engine;
}

}  // namespace hvd
