// Tests the allocator of the shared arena, and the memory in which the arena lies.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/error.hpp>

#include "host/allocations.hpp"
#include "host/arena.hpp"
#include "host/block_list.hpp"
#include "host/group.hpp"
#include "host/segment.hpp"
#include "host/shared.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(BlockList, JoinsWhatIsGivenBack) {
  BlockList list(kMiB);
  std::vector<std::size_t> blocks;
  while (const auto block = list.take(1000)) blocks.push_back(block->offset);
  EXPECT_EQ(blocks.size(), kMiB / 1024);
  EXPECT_EQ(list.used(), kMiB);
  for (std::size_t i = 0; i < blocks.size(); i += 2) EXPECT_TRUE(list.give(blocks[i]));
  EXPECT_FALSE(list.take(2000)) << "the holes are small";
  for (std::size_t i = 1; i < blocks.size(); i += 2) EXPECT_TRUE(list.give(blocks[i]));
  EXPECT_EQ(list.used(), 0U);
  const auto all = list.take(kMiB);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->size, kMiB);
  EXPECT_FALSE(list.take(1));
}

TEST(BlockList, TakesTheHoleThatFitsBest) {
  BlockList list(kMiB);
  const auto large = list.take(32 * 1024);
  const auto wall = list.take(64);
  const auto small = list.take(1024);
  const auto end = list.take(64);
  ASSERT_TRUE(large && wall && small && end);
  list.give(large->offset);
  list.give(small->offset);
  EXPECT_EQ(list.take(1000)->offset, small->offset);
  EXPECT_EQ(list.take(20'000)->offset, large->offset);
}

TEST(BlockList, RefusesWhatItDoesNotKnow) {
  BlockList list(kMiB);
  const auto block = list.take(100);
  ASSERT_TRUE(block);
  EXPECT_FALSE(list.give(block->offset + 64));
  EXPECT_TRUE(list.give(block->offset));
  EXPECT_FALSE(list.give(block->offset)) << "twice";
  EXPECT_FALSE(list.take(kMiB + 1));
  EXPECT_FALSE(list.take(~std::size_t{0}));
  EXPECT_TRUE(list.take(0)) << "nothing is something";
}

TEST(BlockList, NeverGivesTheSameTwice) {
  BlockList list(4 * kMiB);
  std::mt19937 random(7);
  std::map<std::size_t, std::size_t> taken;  // size by offset
  std::size_t used = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (taken.empty() || random() % 5 < 3) {
      const std::size_t size = random() % 8 == 0 ? random() % (300 * 1024) : random() % 3000;
      const auto block = list.take(size);
      if (!block) continue;
      ASSERT_EQ(block->offset % (size >= BlockList::kLarge ? BlockList::kPage : 64U), 0U);
      ASSERT_GE(block->size, size);
      const auto after = taken.lower_bound(block->offset);
      if (after != taken.end()) {
        ASSERT_LE(block->offset + block->size, after->first);
      }
      if (after != taken.begin()) {
        ASSERT_LE(std::prev(after)->first + std::prev(after)->second, block->offset);
      }
      ASSERT_LE(block->offset + block->size, list.size());
      taken[block->offset] = block->size;
      used += block->size;
    } else {
      const auto victim =
          std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      ASSERT_TRUE(list.give(victim->first));
      used -= victim->second;
      taken.erase(victim);
    }
    ASSERT_EQ(list.used(), used);
  }
}

std::shared_ptr<const HostSegment> segment_of(std::size_t arena) {
  return std::make_shared<const HostSegment>(HostSegment::create(0, 2, arena));
}

TEST(HostArena, GivesAlignedMemoryUntilItIsFull) {
  HostArena arena(segment_of(8 * kMiB));
  EXPECT_EQ(arena.capacity(), 8 * kMiB);
  std::vector<void*> blocks;
  for (std::size_t size = 1;; size = size % 100'000 * 3 + 1) {
    void* const block = arena.allocate(size);
    if (block == nullptr) break;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
    EXPECT_TRUE(arena.contains(block, size));
    std::memset(block, 1, size);
    blocks.push_back(block);
  }
  EXPECT_GT(arena.used(), 7 * kMiB);
  for (void* const block : blocks) arena.deallocate(block);
  arena.deallocate(nullptr);
  EXPECT_EQ(arena.used(), 0U);
  void* const all = arena.allocate(8 * kMiB);
  EXPECT_NE(all, nullptr);
  EXPECT_EQ(arena.allocate(1), nullptr);
}

TEST(HostArena, KnowsWhatLiesInIt) {
  HostArena arena(segment_of(kMiB));
  auto* const block = static_cast<std::byte*>(arena.allocate(100));
  int local = 0;
  EXPECT_FALSE(arena.contains(&local, 4));
  EXPECT_FALSE(arena.contains(nullptr, 0));
  EXPECT_TRUE(arena.contains(block, kMiB));
  EXPECT_FALSE(arena.contains(block, kMiB + 1));
  EXPECT_FALSE(arena.contains(block - 1, 1));
  EXPECT_FALSE(arena.contains(block, ~std::size_t{0}));
  arena.deallocate(&local);  // not its own: nothing
  EXPECT_EQ(arena.used(), 128U);
}

TEST(HostArena, GivesIdlePagesBack) {
  const auto segment = segment_of(64 * kMiB);
  HostArena arena(segment);
  const auto pages = [&] {
    struct stat status {};
    EXPECT_EQ(::fstat(segment->memory().fd(), &status), 0);
    return static_cast<std::size_t>(status.st_blocks) * 512;
  };
  const std::size_t before = pages();
  EXPECT_LT(before, 4 * kMiB) << "it is not sparse";
  void* const large = arena.allocate(32 * kMiB);
  ASSERT_NE(large, nullptr);
  EXPECT_GE(pages(), 32 * kMiB) << "a machine without memory would only say so at the first touch";
  std::memset(large, 1, 32 * kMiB);
  arena.deallocate(large);
  EXPECT_LT(pages(), before + 8 * kMiB);
  auto* const again = static_cast<char*>(arena.allocate(32 * kMiB));
  ASSERT_NE(again, nullptr);
  again[32 * kMiB - 1] = 1;

  void* const little = arena.allocate(2 * kMiB);
  arena.deallocate(little);
  EXPECT_GE(pages(), 34 * kMiB) << "what a step frees the next one takes again";

  arena.deallocate(again);
  EXPECT_GE(pages(), 32 * kMiB) << "it was given back too early before";
}

TEST(HostArena, BelongsToOneProcess) {
  HostArena arena(segment_of(16 * kMiB));
  auto* const block = static_cast<char*>(arena.allocate(8 * kMiB));
  ASSERT_NE(block, nullptr);
  std::memset(block, 1, 8 * kMiB);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    arena.deallocate(block);
    ::_exit(arena.allocate(64) == nullptr ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(std::all_of(block, block + 8 * kMiB, [](char value) { return value == 1; }));
}

TEST(HostArena, TakesPagesBackFromTheOthers) {
  const auto segment = segment_of(8 * kMiB);
  const HostSegment other = HostSegment::attach(UniqueFd(::dup(segment->memory().fd())), 0, 2);
  HostArena arena(segment);
  constexpr std::size_t kBytes = 20'000;
  auto* const before = static_cast<std::byte*>(arena.allocate(640));
  auto* const first = static_cast<std::byte*>(arena.allocate(kBytes));
  auto* const second = static_cast<std::byte*>(arena.allocate(3 * kMiB));
  auto* const after = static_cast<std::byte*>(arena.allocate(640));
  std::fill_n(before, 640, std::byte{5});
  std::fill_n(first, kBytes, std::byte{1});
  std::fill_n(second, 3 * kMiB, std::byte{2});
  // The blocks are not in the order of their addresses, and a part of one is listed again.
  EXPECT_EQ(arena.make_private({{arena.offset_of(second), 3 * kMiB},
                                {arena.offset_of(first), kBytes},
                                {arena.offset_of(first), 100}}),
            "");

  std::fill_n(other.data() + HostSegment::arena_begin(), 8 * kMiB, std::byte{9});
  EXPECT_EQ(std::count(first, first + kBytes, std::byte{1}), std::ptrdiff_t{kBytes});
  EXPECT_EQ(std::count(second, second + 3 * kMiB, std::byte{2}), std::ptrdiff_t{3 * kMiB});
  EXPECT_EQ(std::count(before, before + 640, std::byte{5}), 640) << "it is in a page of the first";
  std::fill_n(second, 3 * kMiB, std::byte{3});
  EXPECT_EQ(other.data()[arena.offset_of(second)], std::byte{9});

  // All blocks can still be deallocated and allocated again, and their pages stay private.
  for (std::byte* const block : {before, first, second, after}) arena.deallocate(block);
  auto* const all = static_cast<std::byte*>(arena.allocate(8 * kMiB));
  ASSERT_NE(all, nullptr);
  std::fill_n(all, 8 * kMiB, std::byte{4});
  std::fill_n(other.data() + HostSegment::arena_begin(), 8 * kMiB, std::byte{9});
  EXPECT_EQ(std::count(second, second + 3 * kMiB, std::byte{4}), std::ptrdiff_t{3 * kMiB});
}

TEST(HostArena, LosesNothingThatIsWrittenWhileItTakesPagesBack) {
  if (!allocations()) GTEST_SKIP() << "needs a process in which a mapping counts as no write";
  const auto segment = segment_of(8 * kMiB);
  HostArena arena(segment);
  auto* const memory = static_cast<std::byte*>(arena.allocate(4 * kMiB));
  auto* const count = reinterpret_cast<std::uint64_t*>(memory + 2 * kMiB);
  std::promise<void> begun;
  std::promise<void> taken_back;
  std::uint64_t counted = 0;
  std::thread neighbour([&, over = taken_back.get_future()] {
    for (; counted < 100 || over.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
         ++counted) {
      *static_cast<volatile std::uint64_t*>(count) = *count + 1;
      if (counted == 10) begun.set_value();
    }
  });
  begun.get_future().wait();
  EXPECT_EQ(arena.make_private({{arena.offset_of(memory), 4 * kMiB}}), "");
  taken_back.set_value();
  neighbour.join();
  EXPECT_EQ(*count, counted);
}

/// A limit on the private memory of the process makes the copy of the pages fail.
TEST(HostArena, SaysSoWhenItCannotTakePagesBack) {
  if (!allocations()) GTEST_SKIP() << "needs a heap without a sanitizer";
  const auto segment = segment_of(64 * kMiB);
  const HostSegment other = HostSegment::attach(UniqueFd(::dup(segment->memory().fd())), 0, 2);
  HostArena arena(segment);
  auto* const block = static_cast<std::byte*>(arena.allocate(64 * kMiB));
  ASSERT_NE(block, nullptr);
  std::fill_n(block, 64 * kMiB, std::byte{1});
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_DATA, &limit), 0);
  rlimit none = limit;
  none.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_DATA, &none), 0);
  const std::string refused = arena.make_private({{arena.offset_of(block), 64 * kMiB}});
  ASSERT_EQ(::setrlimit(RLIMIT_DATA, &limit), 0);
  EXPECT_NE(refused, "");
  // The block has the same contents as before and is still shared.
  EXPECT_EQ(std::count(block, block + 64 * kMiB, std::byte{1}), std::ptrdiff_t{64 * kMiB});
  other.data()[arena.offset_of(block)] = std::byte{2};
  EXPECT_EQ(*block, std::byte{2});
}

TEST(HostArena, ServesThreadsAtOnce) {
  HostArena arena(segment_of(16 * kMiB));
  std::vector<std::thread> threads;
  for (int id = 1; id <= 4; ++id) {
    threads.emplace_back([&arena, id] {
      for (std::size_t i = 0; i < 2000; ++i) {
        const std::size_t size = 64 + i % 50 * 100;
        auto* const block = static_cast<char*>(arena.allocate(size));
        ASSERT_NE(block, nullptr);
        std::memset(block, id, size);
        ASSERT_TRUE(std::all_of(block, block + size, [id](char c) { return c == id; }));
        arena.deallocate(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena.used(), 0U);
}

UniqueFd copy_of(const HostSegment& segment) { return UniqueFd(::dup(segment.memory().fd())); }

TEST(HostSegment, IsMappedByOthersAndCannotShrink) {
  const HostSegment own = HostSegment::create(1, 3, kMiB);
  EXPECT_NE(::ftruncate(own.memory().fd(), 0), 0);
  const HostSegment other = HostSegment::attach(copy_of(own), 1, 3);
  EXPECT_EQ(other.size(), own.size());
  EXPECT_TRUE(other.cpus().any());
  own.data()[own.size() - 1] = std::byte{7};
  EXPECT_EQ(other.data()[own.size() - 1], std::byte{7});
}

TEST(HostSegment, RefusesForeignHeaders) {
  HostHeader good{};
  good.magic = HostHeader::kMagic;
  good.version = HostHeader::kVersion;
  good.ranks = 3;
  good.owner = 1;
  good.size = HostSegment::arena_begin() + kMiB;
  const auto problem = [&](const HostHeader& header) {
    return HostSegment::problem_with(header, good.size, 1, 3);
  };
  EXPECT_EQ(problem(good), "");
  HostHeader bad = good;
  bad.magic ^= 1;
  EXPECT_NE(problem(bad), "");
  bad = good;
  ++bad.version;
  EXPECT_NE(problem(bad), "");
  bad = good;
  bad.owner = 2;
  EXPECT_NE(problem(bad), "");
  bad = good;
  bad.ranks = 4;
  EXPECT_NE(problem(bad), "");
  bad = good;
  bad.size *= 2;
  EXPECT_NE(problem(bad), "");
}

/// A rank does not trust the offsets at which the tensors of other ranks are said to lie.
TEST(HostGroup, RefusesWhatPointsOutsideTheArena) {
  const HostSegment own = HostSegment::create(3, 8, kMiB);
  const HostSegment other = HostSegment::create(5, 8, 2 * kMiB);
  const Failure failure;
  ShmWait waiting(3, own.doorbell(), 0, failure);
  const std::size_t begin = HostSegment::arena_begin();
  const auto member = [&](int rank, const HostSegment& segment) {
    return HostMember{{rank, &segment.doorbell(), -1}, &segment};
  };
  const HostGroup group({member(3, own), member(5, other)}, 0, waiting);
  const std::size_t end = other.size();
  EXPECT_EQ(group.at(1, begin, 2 * kMiB), other.data() + begin);
  EXPECT_EQ(group.at(1, end - 64, 64), other.data() + end - 64);
  EXPECT_EQ(group.at(1, end, 0), other.data() + end);
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  const std::pair<std::uint64_t, std::size_t> refused[] = {
      {0, 64},         {begin - 1, 64}, {begin, 2 * kMiB + 1}, {end - 63, 64}, {end, 1},
      {end + 1, 0},    {kMost, 1},      {kMost - 63, 64},      {begin, kMost}, {end - 1, kMost},
      {kMost - 63, 65}};
  for (const auto& [offset, bytes] : refused) {
    const Error error = error_of([&, at = offset, size = bytes] { (void)group.at(1, at, size); });
    EXPECT_EQ(error.code(), Errc::protocol) << error.what();
    EXPECT_EQ(error.fault().rank, 5);
    EXPECT_EQ(error.fault().cause, "points outside its arena");
  }
}

/// A rank that has no memory for a process set tells the other members.
TEST(HostGroup, NamesAMemberWithoutMemoryForASet) {
  HostShared::Peer own;
  HostShared::Peer other;
  other.segment = HostSegment::create(1, 2, kMiB);
  HostSets& theirs = other.segment.sets();
  std::vector<HostShared::Peer> peers;
  peers.push_back(std::move(own));
  peers.push_back(std::move(other));
  HostShared shared(segment_of(kMiB), std::move(peers), 0, 0);
  const auto expect_no_memory = [](const Error& error, int rank) {
    EXPECT_EQ(error.code(), Errc::resource) << error.what();
    EXPECT_EQ(error.fault().rank, rank);
    EXPECT_NE(error.fault().cause.find("HVD_TRANSPORT=tcp"), std::string::npos) << error.what();
  };
  const auto group = shared.group(std::vector<int>{0, 1});
  theirs.refused = shared.own->sets().names[0].load();
  expect_no_memory(error_of([&] { group->attach(soon()); }), 1);

  shared.blocks = HostSets::kMost;
  expect_no_memory(error_of([&] { (void)shared.group(std::vector<int>{0}); }), 0);
  EXPECT_NE(shared.own->sets().refused, 0U);
}

TEST(HostSegment, RefusesWhatIsNotASegment) {
  const auto refused = [](UniqueFd fd) {
    const Error error = error_of([&] { (void)HostSegment::attach(std::move(fd), 2, 3); });
    EXPECT_EQ(error.code(), Errc::protocol) << error.what();
    EXPECT_EQ(error.fault().rank, 2);
  };
  refused(copy_of(HostSegment::create(1, 3, kMiB)));
  const SealedMemory small = SealedMemory::create("test", 4096, 0);
  refused(UniqueFd(::dup(small.fd())));
  const SealedMemory empty = SealedMemory::create("test", HostSegment::arena_begin(), 0);
  refused(UniqueFd(::dup(empty.fd())));
  UniqueFd ends[2];
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  ends[0].reset(pipe[0]);
  ends[1].reset(pipe[1]);
  refused(std::move(ends[0]));
}

TEST(HostSegment, ReportsWhatTheSystemRefuses) {
  EXPECT_EQ(error_of([] { (void)HostSegment::create(0, 2, std::size_t{1} << 47); }).code(),
            Errc::resource);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit none = limit;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Error error = error_of([] { (void)HostSegment::create(0, 2, kMiB); });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(error.code(), Errc::resource);
}

TEST(HostSegment, SizesItsArena) {
  EXPECT_EQ(arena_size_for(5 * kMiB + 3, 2), 5 * kMiB);
  EXPECT_EQ(arena_size_for(1, 2), kMiB);
  const auto machine = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::size_t>(::getpagesize());
  EXPECT_LE(arena_size_for(0, 2) * 4, machine);
  EXPECT_GT(arena_size_for(0, 2) * 5, machine);
}

}  // namespace
}  // namespace hvd::test
