// Checks the header of a rank's shared memory. The first byte of the input chooses the rank.
#include <algorithm>
#include <cstring>

#include "check.hpp"
#include "host/segment.hpp"

using namespace hvd;
using namespace hvd::detail;
using fuzz::check;

namespace {

constexpr int kRanks = 5;

void check_segment(std::span<const std::byte> bytes, int owner) {
  HostHeader header{};
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof header));
  // The peer chooses the size too: an accepted segment is complete and has room for a block.
  const auto size = static_cast<std::size_t>(header.size);
  if (!HostSegment::problem_with(header, size, owner, kRanks).empty()) return;
  check(header.magic == HostHeader::kMagic && header.version == HostHeader::kVersion);
  check(header.owner == static_cast<std::uint32_t>(owner) && header.ranks == kRanks);
  check(size >= HostSegment::arena_begin());
  check(!HostSegment::problem_with(header, size - 1, owner, kRanks).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = fuzz::input(data, size).subspan(1);
  const int owner = data[0] % kRanks;
  check_segment(bytes, owner);
  return 0;
}
