#include "net/frame.hpp"

#include <gmock/gmock.h>

#include "expect_error.hpp"

namespace hvd::net {
namespace {

using test::expect_error;

std::span<const std::byte> header_of(const Bytes& frame) {
  return std::span(frame).first(kFrameHeaderSize);
}

TEST(Frame, RoundTrip) {
  for (const std::size_t size : {0U, 1U, 1000U}) {
    const Bytes frame = encode_frame(FrameType::control, Bytes(size, std::byte{7}));
    ASSERT_EQ(frame.size(), kFrameHeaderSize + size);
    const FrameHeader header = decode_frame_header(header_of(frame), FrameType::control, size);
    EXPECT_EQ(header.length, size);
  }
}

TEST(Frame, TooLongIsRefusedOnBothSides) {
  expect_error(Errc::invalid_argument,
               [] { static_cast<void>(encode_frame(FrameType::control, Bytes(kMaxFrame + 1))); });
  const Bytes frame = encode_frame(FrameType::control, Bytes(100));
  expect_error(Errc::protocol, [&] {
    static_cast<void>(decode_frame_header(header_of(frame), FrameType::control, 99));
  });
}

// Magic, type and version must be exact, and the length, which is at its limit, may only shrink.
TEST(Frame, EveryFlippedBitOfTheHeaderIsSeen) {
  const Bytes frame = encode_frame(FrameType::store_reply, Bytes(8));
  for (std::size_t bit = 0; bit < 8 * kFrameHeaderSize; ++bit) {
    Bytes bad(header_of(frame).begin(), header_of(frame).end());
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    if (bit == 64 + 3) continue;  // turns the length 8 into 0
    expect_error(Errc::protocol,
                 [&] { static_cast<void>(decode_frame_header(bad, FrameType::store_reply, 8)); });
  }
}

TEST(Frame, EveryTruncationOfTheHeaderThrows) {
  const Bytes frame = encode_frame(FrameType::control, {});
  for (std::size_t size = 0; size < kFrameHeaderSize; ++size) {
    expect_error(Errc::protocol, [&] {
      static_cast<void>(decode_frame_header(std::span(frame).first(size), FrameType::control, 1));
    });
  }
}

}  // namespace
}  // namespace hvd::net
