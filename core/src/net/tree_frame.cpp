#include "net/tree_frame.hpp"

namespace hvd::net {
namespace {

std::span<const std::byte> rest_of(WireReader& in) {
  if (in.remaining() > kMaxTreeMessage) in.fail("message too long");
  return in.raw(in.remaining());
}

}  // namespace

Bytes encode_group_frame(const RankSet& ranks, std::span<const std::byte> message) {
  WireWriter out;
  ranks.write(out);
  out.raw(message);
  return out.take();
}

GroupFrame decode_group_frame(std::span<const std::byte> bytes, int first, int end) {
  WireReader in(bytes, "frame of a group");
  GroupFrame frame;
  frame.ranks = RankSet::read(in, first, end);
  frame.message = rest_of(in);
  return frame;
}

Bytes encode_member_frame(bool for_relay, std::span<const std::byte> message) {
  WireWriter out;
  out.u8(for_relay ? 1 : 0);
  out.raw(message);
  return out.take();
}

MemberFrame decode_member_frame(std::span<const std::byte> bytes) {
  WireReader in(bytes, "frame of a member");
  const std::uint8_t for_relay = in.u8();
  if (for_relay > 1) in.fail("value out of range");
  return {for_relay == 1, rest_of(in)};
}

}  // namespace hvd::net
