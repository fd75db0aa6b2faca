#include "host/segment.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "transport/failure.hpp"

namespace hvd::detail {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kDoorbell = 4096;
constexpr std::size_t kSets = 2 * std::size_t{4096};
static_assert(sizeof(HostSets) <= 4096);

HostHeader make_header(int owner, int ranks, std::size_t size) {
  HostHeader header{};
  header.magic = HostHeader::kMagic;
  header.version = HostHeader::kVersion;
  header.ranks = static_cast<std::uint32_t>(ranks);
  header.owner = static_cast<std::uint32_t>(owner);
  header.size = size;
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (::sched_getaffinity(0, sizeof usable, &usable) == 0) {
    for (std::size_t cpu = 0; cpu < std::min<std::size_t>(CPU_SETSIZE, HostHeader::kCpus); ++cpu) {
      if (CPU_ISSET(cpu, &usable)) header.cpus[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
    }
  }
  return header;
}

HostHeader& header_of(const SealedMemory& memory) {
  return *std::launder(reinterpret_cast<HostHeader*>(memory.data()));
}

}  // namespace

std::size_t HostSegment::arena_begin() noexcept {
  return (block(HostSets::kMost + 1) + kMiB - 1) / kMiB * kMiB;
}

HostSegment HostSegment::create(int owner, int ranks, std::size_t arena) {
  HostSegment segment(SealedMemory::create("hvd-host", arena_begin() + arena, block(1)));
  std::byte* const memory = segment.data();
  new (memory) HostHeader(make_header(owner, ranks, segment.size()));
  new (memory + kDoorbell) Doorbell;
  new (memory + kSets) HostSets;
  new (memory + block()) HostControl;
  return segment;
}

HostSegment HostSegment::attach(UniqueFd fd, int owner, int ranks) {
  HostSegment segment(SealedMemory::attach(std::move(fd), arena_begin(), owner));
  const std::string problem =
      problem_with(header_of(segment.memory_), segment.size(), owner, ranks);
  if (!problem.empty()) {
    throw peer_violation(owner, fmt::format("shared memory refused: {}", problem));
  }
  return segment;
}

std::string HostSegment::problem_with(const HostHeader& header, std::size_t size, int owner,
                                      int ranks) {
  if (header.magic != HostHeader::kMagic) return "it is something else";
  if (header.version != HostHeader::kVersion) {
    return fmt::format("its version is {}, not {}", header.version, HostHeader::kVersion);
  }
  if (header.owner != static_cast<std::uint32_t>(owner)) {
    return fmt::format("it belongs to rank {}", header.owner);
  }
  if (header.ranks != static_cast<std::uint32_t>(ranks)) {
    return fmt::format("it is made for {} ranks", header.ranks);
  }
  if (header.size != size || size < arena_begin()) {
    return fmt::format("it says that it has {} bytes, and has {}", header.size, size);
  }
  return {};
}

Doorbell& HostSegment::doorbell() const noexcept {
  return *std::launder(reinterpret_cast<Doorbell*>(memory_.data() + kDoorbell));
}

HostSets& HostSegment::sets() const noexcept {
  return *std::launder(reinterpret_cast<HostSets*>(memory_.data() + kSets));
}

std::bitset<HostHeader::kCpus> HostSegment::cpus() const {
  std::bitset<HostHeader::kCpus> set;
  const HostHeader& header = header_of(memory_);
  for (std::size_t cpu = 0; cpu < HostHeader::kCpus; ++cpu) {
    set[cpu] = (header.cpus[cpu / 64] >> (cpu % 64) & 1) != 0;
  }
  return set;
}

std::size_t arena_size_for(std::size_t setting, int ranks) noexcept {
  std::size_t bytes = setting;
  if (bytes == 0) {
    const long pages = ::sysconf(_SC_PHYS_PAGES);
    const long page = ::sysconf(_SC_PAGESIZE);
    const std::size_t all = pages > 0 && page > 0
                                ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page)
                                : std::size_t{1} << 30;
    bytes = all / 2 / static_cast<std::size_t>(std::max(1, ranks));
  }
  return std::max(kMiB, bytes / kMiB * kMiB);
}

}  // namespace hvd::detail
