// Declares the fixed header in front of every message after the handshake.
#pragma once

#include <cstdint>
#include <span>

#include <hvd/core/internal/wire.hpp>

namespace hvd::net {

inline constexpr std::uint32_t kFrameMagic = 0x66'64'76'68;  // "hvdf" on the wire
inline constexpr std::uint16_t kFrameVersion = 1;
inline constexpr std::size_t kFrameHeaderSize = 12;
inline constexpr std::size_t kMaxFrame = std::size_t{64} << 20;

enum class FrameType : std::uint16_t { control = 1, store_request = 2, store_reply = 3 };

/// Describes the frames that one side of a stream may receive and send.
struct FrameRules {
  FrameType receives = FrameType::control;
  FrameType sends = FrameType::control;
  std::size_t limit = kMaxFrame;  ///< of a received payload
};

struct FrameHeader {
  FrameType type = FrameType::control;
  std::uint32_t length = 0;  ///< of the payload that follows
};

/// Returns header and payload. Throws Errc::invalid_argument when the payload exceeds `kMaxFrame`.
[[nodiscard]] Bytes encode_frame(FrameType type, std::span<const std::byte> payload);
/// Decodes a header. Throws Errc::protocol when `bytes` is not the header of a frame of `expected`
/// type of at most `limit` bytes.
[[nodiscard]] FrameHeader decode_frame_header(std::span<const std::byte> bytes, FrameType expected,
                                              std::size_t limit);

}  // namespace hvd::net
