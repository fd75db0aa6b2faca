// Shared memory as a peer gone wrong might hand it over.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/fd_passing.hpp"
#include "transport/shm_layout.hpp"
#include "transport/shm_ring.hpp"
#include "transport/shm_segment.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

UniqueFd copy_of(const ShmSegment& segment) { return UniqueFd(::dup(segment.fd())); }

TEST(ShmLayout, KeepsRingsApartAndBounded) {
  for (const int ranks : {2, 3, 8, 9, 64, 200}) {
    const ShmLayout layout(ranks);
    EXPECT_EQ(layout.capacity() % kShmUnit, 0U);
    EXPECT_GE(layout.capacity(), kShmPiece);
    std::size_t end = layout.counters(5 % ranks, 0);
    std::size_t last = 0;
    for (int sender = 0; sender < ranks; ++sender) {
      if (sender == 5 % ranks) continue;
      EXPECT_GE(layout.counters(5 % ranks, sender), last);
      last = layout.counters(5 % ranks, sender) + sizeof(ShmCounters);
    }
    end = last;
    for (int sender = 0; sender < ranks; ++sender) {
      if (sender == 5 % ranks) continue;
      EXPECT_GE(layout.data(5 % ranks, sender), end);
      end = layout.data(5 % ranks, sender) + layout.capacity();
    }
    EXPECT_EQ(end, layout.size());
    if (ranks <= 100) {
      EXPECT_LE(layout.size(), std::size_t{9} << 20);
    }
  }
}

TEST(ShmLayout, RefusesForeignHeaders) {
  const ShmLayout layout(4);
  const auto problem = [&](ShmHeader header) {
    std::array<std::byte, sizeof(ShmHeader)> bytes{};
    std::memcpy(bytes.data(), &header, sizeof header);
    return layout.problem_with(bytes, 2);
  };
  const ShmHeader good = layout.header(2);
  EXPECT_EQ(problem(good), "");
  ShmHeader bad = good;
  bad.magic ^= 1;
  EXPECT_NE(problem(bad), "");
  bad = good;
  bad.version = 7;
  EXPECT_NE(problem(bad), "");
  bad = good;
  bad.owner = 3;
  EXPECT_NE(problem(bad), "");
  bad = good;
  bad.ranks = 5;
  EXPECT_NE(problem(bad), "");
  bad = good;
  bad.capacity *= 2;
  EXPECT_NE(problem(bad), "");
  EXPECT_NE(layout.problem_with({}, 2), "");
}

TEST(ShmSegment, IsSealedAndMappedByOthers) {
  const ShmLayout layout(3);
  const ShmSegment own = ShmSegment::create(layout, 1);
  EXPECT_NE(::ftruncate(own.fd(), 0), 0) << "a peer could shrink it";
  const ShmSegment other = ShmSegment::attach(copy_of(own), layout, 1);
  own.counters(layout, 1, 0).written.store(64);
  EXPECT_EQ(other.counters(layout, 1, 0).written.load(), 64U);
}

TEST(ShmSegment, IsRefusedUnsealedOrOfAnotherSize) {
  const ShmLayout layout(3);
  UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), static_cast<off_t>(layout.size())), 0);
  const Error error = error_of([&] { (void)ShmSegment::attach(std::move(unsealed), layout, 2); });
  EXPECT_EQ(error.code(), Errc::protocol);
  EXPECT_EQ(error.fault().rank, 2);

  const ShmSegment larger = ShmSegment::create(ShmLayout(4), 1);
  EXPECT_EQ(error_of([&] { (void)ShmSegment::attach(copy_of(larger), layout, 1); }).code(),
            Errc::protocol);
  const ShmSegment of_another = ShmSegment::create(layout, 0);
  EXPECT_EQ(error_of([&] { (void)ShmSegment::attach(copy_of(of_another), layout, 1); }).code(),
            Errc::protocol);
}

TEST(ShmRing, RefusesImpossibleCounters) {
  ShmCounters counters;
  std::vector<std::byte> memory(4096);
  ShmReader reader(counters, memory, 3);
  ShmWriter writer(counters, memory, 3);
  for (const std::uint64_t value : {std::uint64_t{4160}, ~std::uint64_t{0}, std::uint64_t{63}}) {
    counters.written.store(value);
    const Error error = error_of([&] { (void)reader.peek(100); });
    EXPECT_EQ(error.code(), Errc::protocol);
    EXPECT_EQ(error.fault().rank, 3);
    counters.read.store(value);
    EXPECT_EQ(error_of([&] { (void)writer.write(memory); }).code(), Errc::protocol);
  }
}

TEST(ShmRing, WrapsAroundAndNeverOverfills) {
  ShmCounters counters;
  std::vector<std::byte> memory(256);
  ShmReader reader(counters, memory, 0);
  ShmWriter writer(counters, memory, 1);
  const std::vector<std::byte> message(200, std::byte{7});
  EXPECT_EQ(writer.write(message), 200U);
  EXPECT_EQ(writer.room(), 0U) << "200 bytes take four units of 64";
  EXPECT_EQ(writer.write(message), 0U);
  EXPECT_EQ(reader.peek(200).size(), 200U);
  reader.release(200);
  EXPECT_EQ(writer.write(std::span(message).first(60)), 60U);
  EXPECT_EQ(writer.write(message), 192U) << "up to the end of the memory";
  EXPECT_EQ(writer.write(std::span(message).subspan(192)), 0U);
  EXPECT_EQ(reader.peek(60).size(), 60U);
  reader.release(60);
  EXPECT_EQ(writer.write(std::span(message).subspan(192)), 8U);
  EXPECT_EQ(reader.peek(200).size(), 192U) << "up to the end of the memory";
  reader.release(192);
  EXPECT_EQ(reader.peek(8).size(), 8U);
}

class SocketPair {
 public:
  SocketPair() {
    std::array<int, 2> fds{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) != 0) {
      throw std::runtime_error("socketpair");
    }
    left.reset(fds[0]);
    right.reset(fds[1]);
  }
  UniqueFd left;
  UniqueFd right;
};

TEST(FdPassing, HandsOverTheSameFile) {
  const SocketPair pair;
  const UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
  send_descriptor(pair.left.get(), file.get(), 1, soon());
  const UniqueFd copy = receive_descriptor(pair.right.get(), 0, soon());
  ASSERT_TRUE(copy);
  ASSERT_EQ(::write(file.get(), "x", 1), 1);
  char read = 0;
  EXPECT_EQ(::pread(copy.get(), &read, 1, 0), 1);
  EXPECT_EQ(read, 'x');
  EXPECT_NE(::fcntl(copy.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(FdPassing, NamesAPeerThatLeavesIsSilentOrSendsSomethingElse) {
  const SocketPair silent;
  const Deadline now = Clock::now() + std::chrono::milliseconds(30);
  const Error timeout = error_of([&] { (void)receive_descriptor(silent.left.get(), 4, now); });
  EXPECT_EQ(timeout.code(), Errc::timeout);
  EXPECT_EQ(timeout.fault().rank, 4);

  SocketPair left;
  left.right.reset();
  EXPECT_EQ(error_of([&] { (void)receive_descriptor(left.left.get(), 4, soon()); }).code(),
            Errc::peer_lost);

  const SocketPair chatty;
  ASSERT_EQ(::write(chatty.right.get(), "x", 1), 1);
  EXPECT_EQ(error_of([&] { (void)receive_descriptor(chatty.left.get(), 4, soon()); }).code(),
            Errc::protocol);
}

}  // namespace
}  // namespace hvd::test
