#include "net/control_frame.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace hvd::net {

void RankSet::insert(int rank) {
  const auto behind =
      std::upper_bound(ranges_.begin(), ranges_.end(), rank,
                       [](int value, const Range& range) { return value < range.first; });
  const bool follows = behind != ranges_.begin() && std::prev(behind)->end >= rank;
  const bool precedes = behind != ranges_.end() && behind->first == rank + 1;
  if (follows && std::prev(behind)->end > rank) return;
  if (follows && precedes) {
    std::prev(behind)->end = behind->end;
    ranges_.erase(behind);
  } else if (follows) {
    ++std::prev(behind)->end;
  } else if (precedes) {
    --behind->first;
  } else {
    ranges_.insert(behind, {rank, rank + 1});
  }
}

bool RankSet::contains(int rank) const noexcept {
  return std::any_of(ranges_.begin(), ranges_.end(), [rank](const Range& range) {
    return range.first <= rank && rank < range.end;
  });
}

std::vector<int> RankSet::ranks() const {
  std::vector<int> result;
  for (const Range& range : ranges_) {
    for (int rank = range.first; rank < range.end; ++rank) result.push_back(rank);
  }
  return result;
}

void RankSet::write(WireWriter& out) const {
  out.u32(static_cast<std::uint32_t>(ranges_.size()));
  for (const Range& range : ranges_) {
    out.i32(range.first);
    out.i32(range.end);
  }
}

RankSet RankSet::read(WireReader& in, int first, int end) {
  RankSet set;
  const std::uint32_t count = in.count(2 * sizeof(std::int32_t));
  int least = first;
  for (std::uint32_t i = 0; i < count; ++i) {
    Range range;
    range.first = in.i32();
    range.end = in.i32();
    if (range.first < least || range.end <= range.first || range.end > end) {
      in.fail(fmt::format("ranks {} to {} do not belong between {} and {}", range.first, range.end,
                          first, end));
    }
    least = range.end < end ? range.end + 1 : end;  // ranges that touch would be one range
    set.ranges_.push_back(range);
  }
  return set;
}

Bytes encode_control_frame(const RankSet& ranks, std::span<const std::byte> message) {
  WireWriter out;
  ranks.write(out);
  out.raw(message);
  return out.take();
}

ControlFrame decode_control_frame(std::span<const std::byte> bytes, int first, int end) {
  WireReader in(bytes, "frame of the control channel");
  ControlFrame frame;
  frame.ranks = RankSet::read(in, first, end);
  if (in.remaining() > kMaxControlMessage) in.fail("message too long");
  frame.message = in.raw(in.remaining());
  return frame;
}

}  // namespace hvd::net
