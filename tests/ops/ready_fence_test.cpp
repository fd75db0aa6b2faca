// Tests what every ready fence promises: no member continues before all have arrived, and failures
// are typed errors.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <hvd/core/internal/all_ranks.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/core/store.hpp>
#include <hvd/ops/internal/ready_fence.hpp>

#include "fence/token.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using Members = std::vector<int>;

/// Returns a deadline so late that only a test that fails waits for it.
Deadline soon() { return Clock::now() + std::chrono::seconds(30); }

enum class Kind { tcp, host };

std::unique_ptr<ReadyFence> make_fence(Kind kind, Session& session) {
  return kind == Kind::host ? make_host_fence(session) : make_tcp_fence(session);
}

using Body = std::function<void(int rank, std::unique_ptr<ReadyFence> fence)>;

/// Runs `body` on one thread per rank; a rank that throws fails the test.
void with_ranks(Kind kind, int size, const Body& body) {
  const auto store = make_hash_store();
  expect_threads(size, [&](int rank) {
    Session session(thread_config(rank, size), store);
    body(rank, make_fence(kind, session));
  });
}

/// Yields until `condition` holds. Fails the test when that takes too long.
void until(const std::function<bool()>& condition) {
  const Deadline deadline = soon();
  while (!condition()) {
    ASSERT_LT(Clock::now(), deadline);
    std::this_thread::yield();
  }
}

/// Lets other threads see whether a thread sleeps.
class Sleeper {
 public:
  void is_this_thread() { thread_ = static_cast<pid_t>(::syscall(SYS_gettid)); }
  [[nodiscard]] bool asleep() const {
    if (thread_ == 0) return false;
    std::ifstream file("/proc/self/task/" + std::to_string(thread_) + "/stat");
    std::string line;
    std::getline(file, line);
    const auto name_end = line.rfind(')');
    return name_end != std::string::npos && line.compare(name_end, 3, ") S") == 0;
  }

 private:
  std::atomic<pid_t> thread_{0};
};

/// Lets the rank of a test that is late see the other ranks.
struct Crowd {
  explicit Crowd(int size)
      : sleepers(static_cast<std::size_t>(size)),
        fence(static_cast<std::size_t>(size)),
        over(size) {}

  /// Publishes this rank before it goes to the fence.
  void join(int rank, ReadyFence& own) {
    const auto at = static_cast<std::size_t>(rank);
    fence[at] = &own;
    sleepers[at].is_this_thread();
  }
  /// Waits until all ranks but `rank` have gone to the fence and sleep.
  void wait_for_sleep(int rank) {
    for (std::size_t other = 0; other < sleepers.size(); ++other) {
      if (other != static_cast<std::size_t>(rank)) until([&] { return sleepers[other].asleep(); });
    }
  }

  std::vector<Sleeper> sleepers;
  std::vector<std::atomic<ReadyFence*>> fence;
  std::barrier<> over;  ///< no rank leaves while the late one looks at it
};

std::string name_of(const std::tuple<Kind, int>& parameter) {
  constexpr const char* kNames[] = {"tcp", "host"};
  const auto [kind, size] = parameter;
  return kNames[static_cast<int>(kind)] + std::string("_") + std::to_string(size);
}

class ReadyFenceTest : public testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  [[nodiscard]] static Kind kind() { return std::get<0>(GetParam()); }
  [[nodiscard]] static int size() { return std::get<1>(GetParam()); }
  [[nodiscard]] static int last_rank() { return size() - 1; }
};

TEST_P(ReadyFenceTest, EverybodyHasComeWhenItReturns) {
  constexpr std::size_t kOperations = 1000;
  std::mt19937 random(static_cast<unsigned>(size()));
  std::vector<Members> sets(8);
  for (Members& some : sets) {
    for (int rank = 0; rank < size(); ++rank) {
      if (random() % 3 != 0) some.push_back(rank);
    }
  }
  std::vector<Members> members(kOperations);
  for (Members& some : members) some = sets[random() % sets.size()];
  std::vector<std::atomic<std::size_t>> came(kOperations);
  with_ranks(kind(), size(), [&](int rank, std::unique_ptr<ReadyFence> fence) {
    for (std::size_t i = 0; i < kOperations; ++i) {
      if (std::find(members[i].begin(), members[i].end(), rank) == members[i].end()) continue;
      ++came[i];
      ASSERT_TRUE(fence->arrive_and_wait(3 * i + 1, 77 * i, members[i]));
      ASSERT_EQ(came[i], members[i].size()) << "sequence " << i;
    }
  });
}

TEST_P(ReadyFenceTest, ALateRankWakesTheSleepers) {
  Crowd crowd(size());
  std::atomic<bool> came{false};
  with_ranks(kind(), size(), [&](int rank, std::unique_ptr<ReadyFence> fence) {
    for (std::uint64_t sequence = 1; sequence <= 5; ++sequence) {
      // Each rank is late in turn. In the first round, streams are still to be opened.
      const int late = static_cast<int>(sequence) % size();
      came = false;
      crowd.over.arrive_and_wait();
      crowd.join(rank, *fence);
      if (rank == late) {
        crowd.wait_for_sleep(rank);
        came = true;
      }
      EXPECT_TRUE(fence->arrive_and_wait(sequence, 0, all_ranks(size())));
      EXPECT_TRUE(came);
      crowd.over.arrive_and_wait();
    }
  });
}

TEST_P(ReadyFenceTest, CancelledOperationsAreNotWaitedForAndLaterOnesAre) {
  if (size() == 1) return;
  Crowd crowd(size());
  with_ranks(kind(), size(), [&](int rank, std::unique_ptr<ReadyFence> fence) {
    const Members all = all_ranks(size());
    for (std::uint64_t sequence = 10; sequence < 50; sequence += 10) {
      crowd.join(rank, *fence);
      if (rank == last_rank()) {
        crowd.wait_for_sleep(rank);
        std::vector<std::uint64_t> reached(all.size(), sequence + 1);
        reached.back() = sequence - 1;
        for (auto& waiting : crowd.fence) waiting.load()->settle(reached);
      }
      EXPECT_FALSE(fence->arrive_and_wait(sequence, 0, all));
      EXPECT_FALSE(fence->arrive_and_wait(sequence + 1, 0, all))
          << "the later one was named, so this too";
      crowd.over.arrive_and_wait();
      EXPECT_TRUE(fence->arrive_and_wait(sequence + 2, 0, all));
      EXPECT_TRUE(fence->arrive_and_wait(sequence + 3, 0, all));
      crowd.over.arrive_and_wait();
    }
  });
}

TEST_P(ReadyFenceTest, SettledOperationsEndAlikeOnAllRanks) {
  constexpr std::uint64_t kRounds = 100;
  std::mt19937 random(7);
  // The rank that does not come to the operation of each round; a negative number if all come.
  std::vector<int> absent(kRounds);
  for (int& rank : absent) rank = static_cast<int>(random() % (2 * size())) - size();
  std::barrier round_begins(2 * size());
  with_ranks(kind(), size(), [&](int rank, std::unique_ptr<ReadyFence> fence) {
    const Members all = all_ranks(size());
    std::thread loop([&] {
      for (std::uint64_t i = 0; i < kRounds; ++i) {
        round_begins.arrive_and_wait();
        std::vector<std::uint64_t> reached(all.size(), 10 * i + 2);
        if (absent[i] >= 0) reached[static_cast<std::size_t>(absent[i])] = 10 * i + 1;
        fence->settle(reached);
        round_begins.arrive_and_wait();
      }
    });
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      round_begins.arrive_and_wait();
      EXPECT_TRUE(fence->arrive_and_wait(10 * i + 1, 0, all));
      if (rank != absent[i]) {
        EXPECT_EQ(fence->arrive_and_wait(10 * i + 2, 0, all), absent[i] < 0) << i;
      }
      round_begins.arrive_and_wait();
      EXPECT_TRUE(fence->arrive_and_wait(10 * i + 5, 0, all)) << "later than what was settled";
    }
    loop.join();
  });
}

TEST_P(ReadyFenceTest, AnotherOperationNamesTheRank) {
  if (size() == 1) return;
  std::barrier over(size());
  const int culprit = size() / 2;
  with_ranks(kind(), size(), [&](int rank, std::unique_ptr<ReadyFence> fence) {
    const Members all = all_ranks(size());
    EXPECT_TRUE(fence->arrive_and_wait(1, 5, all));
    const Error error =
        error_of([&] { (void)fence->arrive_and_wait(2, rank == culprit ? 6 : 7, all); });
    EXPECT_EQ(error.code(), Errc::protocol);
    if (rank == culprit) {
      EXPECT_NE(error.fault().rank, culprit);
    } else {
      EXPECT_EQ(error.fault().rank, culprit);
    }
    EXPECT_EQ(error_of([&] { (void)fence->arrive_and_wait(3, 7, all); }).code(), Errc::protocol)
        << "the first error sticks";
    over.arrive_and_wait();
  });
}

TEST_P(ReadyFenceTest, ARankThatLeavesIsNamedToTheSleepers) {
  if (size() == 1) return;
  Crowd crowd(size());
  with_ranks(kind(), size(), [&](int rank, std::unique_ptr<ReadyFence> fence) {
    const Members all = all_ranks(size());
    EXPECT_TRUE(fence->arrive_and_wait(1, 0, all));
    crowd.over.arrive_and_wait();
    crowd.join(rank, *fence);
    if (rank == last_rank()) {
      crowd.wait_for_sleep(rank);
      fence.reset();
    } else {
      const Error error = error_of([&] { (void)fence->arrive_and_wait(2, 0, all); });
      EXPECT_EQ(error.code(), Errc::peer_lost);
      EXPECT_EQ(error.fault().rank, last_rank());
      EXPECT_EQ(error_of([&] { (void)fence->arrive_and_wait(3, 0, all); }).code(), Errc::peer_lost);
    }
    crowd.over.arrive_and_wait();
  });
}

TEST_P(ReadyFenceTest, WhatARankSaidBeforeItLeftIsGood) {
  for (int repeat = 0; repeat < 10; ++repeat) {
    with_ranks(kind(), size(), [&](int, std::unique_ptr<ReadyFence> fence) {
      EXPECT_TRUE(fence->arrive_and_wait(1, 0, all_ranks(size())));
      EXPECT_TRUE(fence->arrive_and_wait(2, 0, all_ranks(size())));
    });
  }
}

TEST_P(ReadyFenceTest, AbortWakesTheSleepers) {
  Crowd crowd(size());
  with_ranks(kind(), size(), [&](int rank, std::unique_ptr<ReadyFence> fence) {
    crowd.join(rank, *fence);
    if (rank == last_rank()) {
      crowd.wait_for_sleep(rank);
      for (auto& waiting : crowd.fence) waiting.load()->abort();
    }
    for (const std::uint64_t sequence : {1, 2}) {
      const Error error =
          error_of([&] { (void)fence->arrive_and_wait(sequence, 0, all_ranks(size())); });
      EXPECT_EQ(error.code(), Errc::aborted);
    }
    crowd.over.arrive_and_wait();
  });
}

TEST_P(ReadyFenceTest, RefusesWrongMembersAndNumbers) {
  struct Wrong {
    std::uint64_t sequence;
    Members members;
  };
  for (const Wrong& wrong :
       {Wrong{2, {}}, Wrong{2, {size()}}, Wrong{2, {0, 0}}, Wrong{2, {-1, 0}}, Wrong{0, {0}}}) {
    with_ranks(kind(), size(), [&](int rank, std::unique_ptr<ReadyFence> fence) {
      if (rank != 0) return;
      EXPECT_EQ(
          error_of([&] { (void)fence->arrive_and_wait(wrong.sequence, 0, wrong.members); }).code(),
          Errc::invalid_argument);
    });
  }
  with_ranks(kind(), size(), [&](int rank, std::unique_ptr<ReadyFence> fence) {
    const Members own{rank};
    EXPECT_TRUE(fence->arrive_and_wait(5, 0, own));
    EXPECT_EQ(error_of([&] { (void)fence->arrive_and_wait(5, 0, own); }).code(),
              Errc::invalid_argument);
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, ReadyFenceTest,
                         testing::Combine(testing::Values(Kind::tcp, Kind::host),
                                          testing::Values(1, 2, 3, 4, 5, 8)),
                         [](const auto& test) { return name_of(test.param); });

/// Lets rank 1 write `bytes` to its stream. Returns the error of rank 0 at the fence.
Error error_at_the_fence(const std::vector<std::byte>& bytes) {
  const auto store = make_hash_store();
  std::optional<Error> error;
  std::barrier over(2);
  expect_threads(2, [&](int rank) {
    Session session(thread_config(rank, 2), store);
    if (rank == 0) {
      const auto fence = make_tcp_fence(session);
      error = error_of([&] { (void)fence->arrive_and_wait(9, 4, all_ranks(2)); });
    } else {
      const UniqueFd stream = session.network().open(0, "tcp/fence", soon());
      EXPECT_EQ(::send(stream.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(bytes.size()));
      ::shutdown(stream.get(), SHUT_WR);
      over.arrive_and_wait();
      return;
    }
    over.arrive_and_wait();
  });
  return *error;
}

std::vector<std::byte> bytes_of(const Token& token) {
  const TokenBytes bytes = encode(token);
  return {bytes.begin(), bytes.end()};
}

TEST(FenceTokens, BadOnesNameTheirSender) {
  const auto expect = [](const std::vector<std::byte>& bytes, Errc code) {
    const Error error = error_at_the_fence(bytes);
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(error.fault().rank, 1);
  };
  const Token good{.sequence = 9, .digest = 4, .round = 0, .verdict = {}};
  expect(std::vector<std::byte>(24, std::byte{0xff}), Errc::protocol);
  Token bad = good;
  bad.round = 3;
  expect(bytes_of(bad), Errc::protocol);
  bad = good;
  bad.digest = 5;
  expect(bytes_of(bad), Errc::protocol);
  bad = good;
  bad.verdict = {Token::Verdict::Kind::lost, 1};
  expect(bytes_of(bad), Errc::peer_lost);
  bad = good;
  bad.sequence = 8;
  expect(bytes_of(bad), Errc::peer_lost);
  bad.sequence = 10;
  expect(bytes_of(bad), Errc::peer_lost);
  std::vector<std::byte> cut = bytes_of(good);
  cut.pop_back();
  expect(cut, Errc::peer_lost);
}

TEST(FenceTokens, AreReadBackOrRefused) {
  const Token token{1ULL << 63, 0x0123'4567'89ab'cdef, 5, {Token::Verdict::Kind::differs, 3}};
  const TokenBytes bytes = encode(token);
  const auto same = decode_token(bytes, 4);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->sequence, token.sequence);
  EXPECT_EQ(same->digest, token.digest);
  EXPECT_EQ(same->round, token.round);
  EXPECT_EQ(same->verdict.kind, token.verdict.kind);
  EXPECT_EQ(same->verdict.culprit, 3);
  EXPECT_FALSE(decode_token(bytes, 3)) << "there is no rank 3 of 3";
  for (std::size_t i = 16; i < bytes.size(); ++i) {
    TokenBytes broken = bytes;
    broken[i] ^= std::byte{0xf0};
    if (i == 20) continue;  // the round is checked by who expects it
    EXPECT_FALSE(decode_token(broken, 4)) << i;
  }
}

}  // namespace
}  // namespace hvd::test
