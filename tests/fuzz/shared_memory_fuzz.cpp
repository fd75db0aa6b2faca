// The headers of shared memory, of which the first byte of the input chooses.
#include <algorithm>
#include <cstring>

#include "check.hpp"
#include "host/segment.hpp"
#include "transport/shm_layout.hpp"

using namespace hvd;
using fuzz::check;

namespace {

constexpr int kRanks = 5;

void check_segment(std::span<const std::byte> bytes, int owner) {
  HostHeader header{};
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof header));
  // A peer chooses its size as well: what is accepted is all there, and has room for a block.
  const auto size = static_cast<std::size_t>(header.size);
  if (!HostSegment::problem_with(header, size, owner, kRanks).empty()) return;
  check(header.magic == HostHeader::kMagic && header.version == HostHeader::kVersion);
  check(header.owner == static_cast<std::uint32_t>(owner) && header.ranks == kRanks);
  check(size >= HostSegment::arena_begin());
  check(!HostSegment::problem_with(header, size - 1, owner, kRanks).empty());
}

void check_rings(std::span<const std::byte> bytes, int owner) {
  const ShmLayout layout(kRanks);
  if (!layout.problem_with(bytes, owner).empty()) return;
  ShmHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const ShmHeader wanted = layout.header(owner);
  check(header.magic == wanted.magic && header.version == wanted.version);
  check(header.ranks == wanted.ranks && header.owner == wanted.owner);
  check(header.capacity == wanted.capacity);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = fuzz::input(data, size).subspan(1);
  const int owner = data[0] % kRanks;
  data[0] < 128 ? check_segment(bytes, owner) : check_rings(bytes, owner);
  return 0;
}
