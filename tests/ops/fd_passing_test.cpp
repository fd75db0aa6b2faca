// Tests passing descriptors from one rank to another.
#include <array>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/internal/session.hpp>

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

/// Returns 0 when passing more descriptors than a user may have in flight is an error of this
/// process at the deadline, and succeeds when some were received.
int pass_too_many() {
  const SocketPair pair;
  const UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
  constexpr uid_t kNobody = 65'534;  // the limit does not hold for root
  const rlimit few{.rlim_cur = 16, .rlim_max = 16};
  if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
  if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) return 3;
  for (int i = 0; i < 40; ++i) {
    try {
      send_descriptors(pair.left.get(), std::vector{file.get()}, 1,
                       Clock::now() + std::chrono::milliseconds(30));
    } catch (const Error& error) {
      if (error.code() != Errc::resource) return 4;
      const pid_t receiver = ::fork();
      if (receiver == 0) {
        for (int left = i; left > 0; --left) {
          (void)receive_descriptors(pair.right.get(), 1, 0, soon());
        }
        ::_exit(0);
      }
      send_descriptors(pair.left.get(), std::vector{file.get()}, 1, soon());
      return ::waitpid(receiver, nullptr, 0) == receiver ? 0 : 6;
    }
  }
  return 5;
}

TEST(FdPassing, TooManyDescriptorsInFlightAreNoLossOfThePeer) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(pass_too_many());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 3) GTEST_SKIP() << "needs a user who is not root";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

/// Lets four ranks exchange descriptors, and returns their errors. `act` takes the place of the
/// exchange where it returns true.
std::vector<Error> errors_of_exchange(
    std::chrono::milliseconds timeout,
    const std::function<bool(Session&, std::span<const int>)>& act) {
  constexpr int kRanks = 4;
  const auto store = make_hash_store();
  std::vector<Error> errors(kRanks, Error(Errc::internal, "no error"));
  expect_threads(kRanks, [&](int rank) {
    Config config = thread_config(rank, kRanks);
    config.start_timeout = timeout;
    Session session(config, store);
    session.bootstrap().barrier("begin");
    const std::vector<int> ranks = ranks_here(session.topology());
    errors[static_cast<std::size_t>(rank)] = error_of([&] {
      if (act(session, ranks)) throw Error(Errc::internal, "it acted");
      const UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
      static_cast<void>(exchange_on_host(session, ranks, "test", file.get()));
    });
  });
  return errors;
}

class ExchangeWithout : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Rank, ExchangeWithout, testing::Values(0, 1, 3));

TEST_P(ExchangeWithout, ARankThatRefusesIsNamedOnAllOthers) {
  const int culprit = GetParam();
  const auto errors =
      errors_of_exchange(std::chrono::minutes(10), [&](Session& session, std::span<const int> all) {
        if (session.topology().rank != culprit) return false;
        refuse_exchange(session, all, "test", Error(Errc::resource, "no memory"));
        return true;
      });
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == culprit) continue;
    const Error& error = errors[static_cast<std::size_t>(rank)];
    EXPECT_EQ(error.code(), Errc::resource) << error.what();
    EXPECT_EQ(error.fault().rank, culprit) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr("no memory"));
  }
}

TEST(Exchange, ARankThatDoesNotComeIsNamedByThoseThatTheLeaderHasNotReached) {
  const auto errors = errors_of_exchange(
      std::chrono::seconds(2),
      [](Session& session, std::span<const int>) { return session.topology().rank == 1; });
  for (const std::size_t rank : {0U, 2U, 3U}) {
    EXPECT_EQ(errors[rank].code(), Errc::timeout) << errors[rank].what();
    EXPECT_EQ(errors[rank].fault().rank, 1) << errors[rank].what();
  }
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
