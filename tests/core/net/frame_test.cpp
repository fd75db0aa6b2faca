#include "net/frame.hpp"

#include <array>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <sys/socket.h>

#include "expect_error.hpp"
#include "net/blocking_io.hpp"
#include "net/frame_stream.hpp"
#include "net/socket.hpp"

namespace hvd::net {
namespace {

using test::expect_error;
using test::soon;

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

/// A connection over TCP on this host. The receiver's host takes less than a frame of `kBig` until
/// the receiver reads.
struct SlowReader {
  SlowReader() {
    Listener listener(Address{Address::Kind::tcp, "127.0.0.1", 0});
    const int small = 4096;
    ::setsockopt(listener.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    sender = connect_to(listener.address(), soon(), Interrupt());
    EXPECT_TRUE(wait_ready(listener.fd(), Ready::read, soon(), Interrupt()));
    receiver = UniqueFd(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    const int big = 4 * kBig;
    ::setsockopt(sender.get(), SOL_SOCKET, SO_SNDBUF, &big, sizeof big);
  }
  static constexpr int kBig = 50'000;
  UniqueFd sender;
  UniqueFd receiver;
};

TEST(FrameStream, IsDeliveredWhenTheOtherHostHasAcknowledgedAll) {
  SlowReader pair;
  EventLoop loop;
  const auto stream = std::make_shared<FrameStream>(loop, std::move(pair.sender), FrameRules());
  const auto delivered = [&] {
    bool result = false;
    loop.run_sync([&] { result = stream->delivered(); });
    return result;
  };
  EXPECT_TRUE(delivered());
  loop.run_sync([&] {
    stream->send(Bytes(SlowReader::kBig));
    EXPECT_EQ(stream->backlog(), 0U);  // the socket has taken all of it
  });
  EXPECT_FALSE(delivered());
  Bytes frame(kFrameHeaderSize + SlowReader::kBig);
  EXPECT_TRUE(read_exact(pair.receiver.get(), frame, soon(), Interrupt()));
  const Deadline deadline = soon();
  while (!delivered() && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(delivered());
  loop.run_sync([&] { stream->close(); });
}

TEST(FrameStream, IsDeliveredToAUnixSocketBeforeThatIsRead) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd other(ends[1]);
  EventLoop loop;
  const auto stream = std::make_shared<FrameStream>(loop, UniqueFd(ends[0]), FrameRules());
  loop.run_sync([&] {
    stream->send(Bytes(10));
    EXPECT_TRUE(stream->delivered());
    stream->close();
  });
}

}  // namespace
}  // namespace hvd::net
