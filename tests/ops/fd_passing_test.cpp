// Tests passing descriptors from one rank to another.
#include <array>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm/descriptors.hpp"
#include "transport/failure.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

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
  const std::vector<int> many(600, file.get());  // more than one message carries
  std::thread sender([&] { send_descriptors(pair.left.get(), many, 1, soon()); });
  const std::vector<UniqueFd> copies = receive_descriptors(pair.right.get(), 600, 0, soon());
  sender.join();
  ASSERT_EQ(copies.size(), many.size());
  const UniqueFd& copy = copies.back();
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
  const Error timeout = error_of([&] { (void)receive_descriptors(silent.left.get(), 1, 4, now); });
  EXPECT_EQ(timeout.code(), Errc::timeout);
  EXPECT_EQ(timeout.fault().rank, 4);

  SocketPair left;
  left.right.reset();
  EXPECT_EQ(error_of([&] { (void)receive_descriptors(left.left.get(), 1, 4, soon()); }).code(),
            Errc::peer_lost);

  const SocketPair chatty;
  ASSERT_EQ(::write(chatty.right.get(), "x", 1), 1);
  EXPECT_EQ(error_of([&] { (void)receive_descriptors(chatty.left.get(), 1, 4, soon()); }).code(),
            Errc::protocol);
}

TEST(FdPassing, AnErrorCanComeInPlaceOfDescriptors) {
  const SocketPair pair;
  send_error(pair.left.get(), peer_lost(7, "closed the connection"));
  const Error error = error_of([&] { (void)receive_descriptors(pair.right.get(), 2, 0, soon()); });
  EXPECT_EQ(error.code(), Errc::peer_lost);
  EXPECT_EQ(error.fault().rank, 7);
  EXPECT_EQ(error.fault().cause, "closed the connection");
}

}  // namespace
}  // namespace hvd::test
