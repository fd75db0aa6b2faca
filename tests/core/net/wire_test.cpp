#include <bit>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include <hvd/core/internal/wire.hpp>

#include "expect_error.hpp"

namespace hvd {
namespace {

using test::bytes_of;
using test::expect_error;

Bytes sample() {
  WireWriter writer;
  writer.u8(0xab);
  writer.u16(0xbeef);
  writer.u32(0xdeadbeef);
  writer.u64(0x0123456789abcdef);
  writer.i32(-2);
  writer.i64(std::numeric_limits<std::int64_t>::min());
  writer.f64(-0.0);
  writer.blob(bytes_of("blob"));
  writer.text("text");
  writer.raw(bytes_of("raw"));
  return writer.take();
}

void read_sample(std::span<const std::byte> bytes) {
  WireReader reader(bytes, "sample");
  EXPECT_EQ(reader.u8(), 0xab);
  EXPECT_EQ(reader.u16(), 0xbeef);
  EXPECT_EQ(reader.u32(), 0xdeadbeef);
  EXPECT_EQ(reader.u64(), 0x0123456789abcdef);
  EXPECT_EQ(reader.i32(), -2);
  EXPECT_EQ(reader.i64(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(std::bit_cast<std::uint64_t>(reader.f64()), std::uint64_t{1} << 63);
  const auto blob = reader.blob(4);
  EXPECT_EQ(Bytes(blob.begin(), blob.end()), bytes_of("blob"));
  EXPECT_EQ(reader.text(4), "text");
  const auto raw = reader.raw(3);
  EXPECT_EQ(Bytes(raw.begin(), raw.end()), bytes_of("raw"));
  reader.finish();
}

TEST(Wire, RoundTrip) { read_sample(sample()); }

TEST(Wire, IsLittleEndian) {
  WireWriter writer;
  writer.u32(0x04030201);
  writer.text("a");
  const Bytes expected{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},  std::byte{1},
                       std::byte{0}, std::byte{0}, std::byte{0}, std::byte{'a'}};
  EXPECT_EQ(writer.take(), expected);
}

TEST(Wire, EveryTruncationThrowsAndNamesTheMessage) {
  const Bytes whole = sample();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string text =
        expect_error(Errc::protocol, [&] { read_sample(std::span(whole).first(size)); });
    EXPECT_THAT(text, testing::HasSubstr("sample")) << size;
  }
}

TEST(Wire, LeftoverBytesThrow) {
  Bytes whole = sample();
  whole.push_back(std::byte{0});
  expect_error(Errc::protocol, [&] { read_sample(whole); });
}

TEST(Wire, LengthsAreBoundedByTheLimitAndByWhatIsThere) {
  WireWriter writer;
  writer.text("12345");
  const Bytes five = writer.take();
  EXPECT_EQ(WireReader(five, "t").text(5), "12345");
  expect_error(Errc::protocol, [&] { static_cast<void>(WireReader(five, "t").text(4)); });

  writer.u32(std::numeric_limits<std::uint32_t>::max());
  const Bytes huge = writer.take();
  expect_error(Errc::protocol, [&] {
    static_cast<void>(WireReader(huge, "t").blob(std::numeric_limits<std::size_t>::max()));
  });
}

TEST(Wire, CountsAreBoundedByTheBytesLeft) {
  WireWriter writer;
  writer.u32(3);
  writer.raw(Bytes(12));
  const Bytes bytes = writer.take();
  EXPECT_EQ(WireReader(bytes, "t").count(4), 3U);
  EXPECT_EQ(WireReader(bytes, "t").count(0), 3U);
  expect_error(Errc::protocol, [&] { static_cast<void>(WireReader(bytes, "t").count(5)); });
  expect_error(Errc::protocol, [&] {
    static_cast<void>(WireReader(bytes, "t").count(std::numeric_limits<std::size_t>::max()));
  });
}

}  // namespace
}  // namespace hvd
