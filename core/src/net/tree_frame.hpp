// What is put before a message on the streams of a control tree. docs/protocol.md.
#pragma once

#include <cstdint>
#include <span>

#include <hvd/core/wire.hpp>

#include "net/frame.hpp"
#include "net/rank_set.hpp"

namespace hvd::net {

/// Room for what is put before it.
inline constexpr std::size_t kMaxTreeMessage = kMaxFrame - (std::size_t{64} << 10);

/// Between rank 0 and a child: the ranks that say this, or that it is said to.
struct GroupFrame {
  RankSet ranks;
  std::span<const std::byte> message;
};
[[nodiscard]] Bytes encode_group_frame(const RankSet& ranks, std::span<const std::byte> message);
/// Throws Errc::protocol, also unless the ranks are some of `first`, … up to `end`, without it.
[[nodiscard]] GroupFrame decode_group_frame(std::span<const std::byte> bytes, int first, int end);

/// Between a relay and a member.
struct MemberFrame {
  bool for_relay = false;  ///< or from it; else for or from rank 0
  std::span<const std::byte> message;
};
[[nodiscard]] Bytes encode_member_frame(bool for_relay, std::span<const std::byte> message);
/// Throws Errc::protocol.
[[nodiscard]] MemberFrame decode_member_frame(std::span<const std::byte> bytes);

}  // namespace hvd::net
