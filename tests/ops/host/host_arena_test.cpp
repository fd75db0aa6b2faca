// The allocator of the shared arena, and the memory that it comes from.
#include "host/host_arena.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hvd/core/error.hpp>

#include "host/block_list.hpp"
#include "host/segment.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

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
  HostArena arena(segment_of(8 * kMiB), HostSegment::arena_begin());
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
  HostArena arena(segment_of(kMiB), HostSegment::arena_begin());
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
  HostArena arena(segment, HostSegment::arena_begin());
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

TEST(HostArena, ServesThreadsAtOnce) {
  HostArena arena(segment_of(16 * kMiB), HostSegment::arena_begin());
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

TEST(HostSegment, RefusesWhatIsNotASegment) {
  const auto refused = [](UniqueFd fd) {
    const Error error = error_of([&] { (void)HostSegment::attach(std::move(fd), 2, 3); });
    EXPECT_EQ(error.code(), Errc::protocol) << error.what();
    EXPECT_EQ(error.fault().rank, 2);
  };
  refused(copy_of(HostSegment::create(1, 3, kMiB)));
  const SealedMemory small = SealedMemory::create("test", 4096, PeerAccess::write);
  refused(UniqueFd(::dup(small.fd())));
  const SealedMemory empty =
      SealedMemory::create("test", HostSegment::arena_begin(), PeerAccess::write);
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
