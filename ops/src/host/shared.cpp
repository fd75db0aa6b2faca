#include "host/shared.hpp"

#include <algorithm>
#include <bitset>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/core/log.hpp>

#include "shm/descriptors.hpp"

namespace hvd::detail {
namespace {

constexpr std::string_view kLabel = "host";  // of the streams that pass descriptors

/// Returns a number that stands for the process set in HostSets, where its members look for each
/// other's blocks of shared memory. It is not 0, which marks a free entry.
std::uint64_t name_of_set(std::span<const int> ranks) noexcept {
  std::uint64_t name = 0;
  for (const int rank : ranks) {
    name = (name ^ static_cast<std::uint64_t>(rank + 1)) * 0x9E37'79B9'7F4A'7C15U;
    name ^= name >> 32;
  }
  return name == 0 ? 1 : name;
}

/// Returns the result of `map`, which makes or maps a segment. Its error for lack of memory,
/// address space or descriptors says what to set.
template <class Map>
HostSegment with_advice(int rank, const Map& map) {
  try {
    return map();
  } catch (const Error& error) {
    if (error.code() != Errc::resource) throw;
    throw Error(Errc::resource,
                fmt::format("rank {} cannot share memory with the other ranks of its host: {}. "
                            "HVD_ARENA_SIZE asks for less; HVD_TRANSPORT=tcp needs none",
                            rank, error.what()));
  }
}

}  // namespace

HostShared::HostShared(std::shared_ptr<const HostSegment> segment, std::vector<Peer> others,
                       int own_rank, int spins)
    : rank(own_rank),
      own(std::move(segment)),
      peers(std::move(others)),
      wait(rank, own->doorbell(), spins, failure, peers.size()) {}

HostMember HostShared::member(int of) const {
  const Peer& peer = peers[static_cast<std::size_t>(of)];
  const HostSegment& segment = of == rank ? *own : peer.segment;
  return {{of, &segment.doorbell(), peer.stream.get()}, &segment};
}

const std::shared_ptr<HostGroup>& HostShared::group_of_all(std::span<const int> ranks) {
  std::vector<HostMember> members;
  for (const int of : ranks) {
    members.push_back(member(of));
    members.back().block = members.back().segment->data() + HostSegment::block();
  }
  const auto self = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  auto made = std::make_shared<HostGroup>(std::move(members), static_cast<int>(self), wait);
  return groups.emplace(std::vector<int>(ranks.begin(), ranks.end()), std::move(made))
      .first->second;
}

const std::shared_ptr<HostGroup>& HostShared::group(std::span<const int> ranks) {
  if (const auto known = groups.find(ranks); known != groups.end()) return known->second;
  std::vector<HostMember> members;
  for (const int of : ranks) members.push_back(member(of));
  const auto self = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
  const std::uint64_t name = name_of_set(ranks);

  // The others find the block by the name of the set, so it is initialised before the name appears.
  const std::size_t offset = HostSegment::block(blocks + 1);
  if (blocks == HostSets::kMost || !own->memory().commit(offset, HostSlots::block_size())) {
    own->sets().refused.store(name, std::memory_order_relaxed);
    throw no_memory_for_set(rank);
  }
  HostMember& here = members[static_cast<std::size_t>(self)];
  here.block = own->data() + offset;
  new (here.block) HostControl;
  own->sets().names[blocks++].store(name, std::memory_order_release);

  auto made = std::make_shared<HostGroup>(std::move(members), static_cast<int>(self), wait, name);
  return groups.emplace(std::vector<int>(ranks.begin(), ranks.end()), std::move(made))
      .first->second;
}

std::shared_ptr<HostShared> share_host_memory(Session& session, std::size_t arena) {
  const int rank = session.topology().rank;
  const int size = session.topology().size;
  const std::vector<int> ranks = ranks_here(session.topology());
  std::shared_ptr<const HostSegment> own;
  try {
    own = std::make_shared<const HostSegment>(
        with_advice(rank, [&] { return HostSegment::create(rank, size, arena); }));
  } catch (const Error& error) {
    refuse_exchange(session, ranks, kLabel, error);
    throw;
  }

  auto found = exchange_on_host(session, ranks, kLabel, own->memory().fd());
  std::vector<HostShared::Peer> peers(static_cast<std::size_t>(size));
  std::bitset<HostHeader::kCpus> cpus;
  for (const int other : ranks) {
    const auto index = static_cast<std::size_t>(other);
    peers[index].stream = std::move(found[index].stream);
    if (other != rank) {
      peers[index].segment = with_advice(
          rank, [&] { return HostSegment::attach(std::move(found[index].memory), other, size); });
    }
    cpus |= (other == rank ? *own : peers[index].segment).cpus();
  }
  const int here = static_cast<int>(ranks.size());
  const int spins = spins_for(here, static_cast<int>(cpus.count()));
  if (log_enabled(LogLevel::plan)) {
    log(LogLevel::plan, rank,
        fmt::format("host memory: {} MiB of arena per rank, {} cores for {} ranks: {}", arena >> 20,
                    cpus.count(), here, spins > 0 ? "spin, yield, sleep" : "yield, sleep"));
  }
  auto shared = std::make_shared<HostShared>(std::move(own), std::move(peers), rank, spins);
  if (here <= ::sysconf(_SC_NPROCESSORS_ONLN)) shared->wait.watch_cpu();
  shared->group_of_all(ranks);
  return shared;
}

}  // namespace hvd::detail
