// Tests the parts of a ready fence: the messages of its members, and the settling of operations.
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fence/settlements.hpp"
#include "host/group.hpp"
#include "shm/sealed_memory.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

/// Two ranks of this process, each with its view of their group.
class Pair {
 public:
  [[nodiscard]] HostGroup& of(int rank) { return rank == 0 ? first_ : second_; }

 private:
  [[nodiscard]] std::vector<HostMember> members() const {
    std::vector<HostMember> found;
    for (const HostSegment* segment : {&segments_[0], &segments_[1]}) {
      const int rank = static_cast<int>(found.size());
      found.push_back(
          {{rank, &segment->doorbell(), -1}, segment, segment->data() + HostSegment::block()});
    }
    return found;
  }

  HostSegment segments_[2] = {HostSegment::create(0, 2, 0), HostSegment::create(1, 2, 0)};
  Failure failure_;
  ShmWait waits_[2] = {{0, segments_[0].doorbell(), 0, failure_},
                       {1, segments_[1].doorbell(), 0, failure_}};
  HostGroup first_{members(), 0, waits_[0]};
  HostGroup second_{members(), 1, waits_[1]};
};

TEST(HostGroupFence, TellsWhoHasArrivedAndWithWhat) {
  Pair pair;
  EXPECT_FALSE(pair.of(0).has_arrived(1, 4, 40));
  pair.of(1).arrive(4, 40);
  EXPECT_TRUE(pair.of(0).has_arrived(1, 4, 40));
  EXPECT_FALSE(pair.of(0).has_arrived(1, 5, 50));
  const Error error = error_of([&] { (void)pair.of(0).has_arrived(1, 4, 41); });
  EXPECT_EQ(error.code(), Errc::protocol);
  EXPECT_EQ(error.fault().rank, 1);
}

TEST(HostGroupFence, WhoWentOnFromACancelledFenceHasNotArrived) {
  Pair pair;
  pair.of(1).arrive(4, 40);
  pair.of(1).arrive(6, 60);
  EXPECT_FALSE(pair.of(0).has_arrived(1, 4, 40));
  pair.of(1).publish(7);  // of an operation that was negotiated
  EXPECT_FALSE(pair.of(0).has_arrived(1, 4, 40));
  EXPECT_FALSE(pair.of(0).has_arrived(1, 6, 60));
  pair.of(0).publish(7);
  EXPECT_EQ(pair.of(0).await(1, 7, soon()), 0U);
}

TEST(HostGroupFence, CarriesWhatWasPreparedForItAndNothingElse) {
  Pair pair;
  for (const int rank : {0, 1}) {
    *pair.of(rank).outgoing(1) = std::byte{9};
    pair.of(rank).prepare(3, 1);
    pair.of(rank).drop_prepared();
    *pair.of(rank).outgoing(1) = std::byte(5 + rank);
    pair.of(rank).prepare(4, static_cast<std::uint64_t>(70 + rank));
    pair.of(rank).arrive(4, 40);
  }
  EXPECT_TRUE(pair.of(0).has_arrived(1, 4, 40));
  pair.of(0).pass_fence();
  pair.of(0).publish(99);  // that has been done
  EXPECT_EQ(pair.of(0).await(1, 99, soon()), 71U);
  EXPECT_EQ(*pair.of(0).incoming(1, 1), std::byte{6});
}

TEST(HostGroupFence, IsReadWhileItChanges) {
  Pair pair;
  constexpr std::uint64_t kLast = 200'000;
  std::atomic<bool> over{false};
  std::thread owner([&] {  // all of them cancelled
    for (std::uint64_t sequence = 1; sequence < kLast; ++sequence) {
      pair.of(1).arrive(sequence, 10 * sequence);
    }
    over = true;
  });
  while (!over) {
    for (std::uint64_t sequence = 1; sequence < kLast; sequence += 997) {
      EXPECT_NO_THROW((void)pair.of(0).has_arrived(1, sequence, 10 * sequence));
    }
  }
  owner.join();
}

TEST(Settlements, TheFirstThatReachesANumberDecidesIt) {
  Settlements said;
  const std::vector<int> both{0, 1};
  EXPECT_EQ(said.of(1, both), FenceOutcome::open);
  said.settle(std::vector<std::uint64_t>{5, 3});
  said.settle(std::vector<std::uint64_t>{0, 0});
  said.settle(std::vector<std::uint64_t>{0, 9});
  EXPECT_TRUE(said.mention(9));
  EXPECT_FALSE(said.mention(10));
  EXPECT_EQ(said.of(3, both), FenceOutcome::runs);
  EXPECT_EQ(said.of(4, both), FenceOutcome::cancelled);
  EXPECT_EQ(said.of(5, std::vector<int>{0}), FenceOutcome::runs);
  EXPECT_EQ(said.of(6, both), FenceOutcome::cancelled) << "rank 0 came to nothing of that";
  EXPECT_EQ(said.of(9, std::vector<int>{1, 2}), FenceOutcome::cancelled) << "there is no rank 2";
  EXPECT_EQ(said.of(10, both), FenceOutcome::open);
}

TEST(SealedMemory, IsSharedAndKeepsItsSize) {
  const SealedMemory own = SealedMemory::create("test", 4096, 4096);
  const SealedMemory seen = SealedMemory::attach(UniqueFd(::dup(own.fd())), 4096, 1);
  own.data()[7] = std::byte{42};
  EXPECT_EQ(seen.data()[7], std::byte{42});
  EXPECT_NE(::ftruncate(own.fd(), 0), 0);
}

}  // namespace
}  // namespace hvd::test
