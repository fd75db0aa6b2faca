#include "net/frame.hpp"

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::net {

Bytes encode_frame(FrameType type, std::span<const std::byte> payload) {
  if (payload.size() > kMaxFrame) {
    throw Error(Errc::invalid_argument, fmt::format("a message of {} bytes exceeds the limit of {}",
                                                    payload.size(), kMaxFrame));
  }
  WireWriter writer;
  writer.u32(kFrameMagic);
  writer.u16(static_cast<std::uint16_t>(type));
  writer.u16(kFrameVersion);
  writer.blob(payload);
  return writer.take();
}

FrameHeader decode_frame_header(std::span<const std::byte> bytes, FrameType expected,
                                std::size_t limit) {
  WireReader reader(bytes, "frame header");
  if (reader.u32() != kFrameMagic) reader.fail("wrong magic number");
  const std::uint16_t type = reader.u16();
  if (type != static_cast<std::uint16_t>(expected)) {
    reader.fail(fmt::format("type {} where {} belongs", type, static_cast<int>(expected)));
  }
  const std::uint16_t version = reader.u16();
  if (version != kFrameVersion) {
    reader.fail(fmt::format("version {} where {} is spoken", version, kFrameVersion));
  }
  const std::uint32_t length = reader.u32();
  reader.finish();
  if (length > limit) reader.fail(fmt::format("{} bytes exceed the limit of {}", length, limit));
  return {expected, length};
}

}  // namespace hvd::net
