// Tests how a relay combines messages that wait, and the encoding of the control channel's frames.
#include "net/control_router.hpp"

#include <map>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "expect_error.hpp"
#include "net/control_frame.hpp"

namespace hvd::net {
namespace {

using test::bytes_of;
using test::expect_error;
using testing::ElementsAre;
using testing::HasSubstr;

using Range = RankSet::Range;

TEST(RankSet, HoldsRangesInAnyOrderOfInsertion) {
  RankSet set;
  for (const int rank : {5, 7, 1, 6, 2, 9, 5, 7}) set.insert(rank);
  EXPECT_THAT(set.ranges(), ElementsAre(Range{1, 3}, Range{5, 8}, Range{9, 10}));
  EXPECT_THAT(set.ranks(), ElementsAre(1, 2, 5, 6, 7, 9));
  EXPECT_TRUE(set.contains(2) && set.contains(7) && !set.contains(3) && !set.contains(8));
}

TEST(CombiningQueue, EqualMessagesOfSeveralRanksAreOne) {
  CombiningQueue queue;
  for (const int rank : {4, 6, 5}) queue.push(RankSet(rank), bytes_of("a"));
  queue.push(RankSet(7), bytes_of("b"));
  EXPECT_EQ(queue.bytes(), 2U);
  const CombiningQueue::Entry first = queue.pop();
  EXPECT_THAT(first.senders.ranks(), ElementsAre(4, 5, 6));
  EXPECT_EQ(first.message, bytes_of("a"));
  EXPECT_THAT(queue.pop().senders.ranks(), ElementsAre(7));
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.bytes(), 0U);
}

TEST(CombiningQueue, NobodyOvertakesItself) {
  CombiningQueue queue;
  queue.push(RankSet(1), bytes_of("a"));
  queue.push(RankSet(1), bytes_of("b"));
  queue.push(RankSet(2), bytes_of("b"));  // is combined with rank 1's
  queue.push(RankSet(2), bytes_of("a"));  // must stay behind rank 2's "b"
  queue.push(RankSet(1), bytes_of("a"));  // is combined with rank 2's second
  queue.push(RankSet(1), bytes_of("a"));  // is a message of its own
  EXPECT_THAT(queue.pop().senders.ranks(), ElementsAre(1));
  EXPECT_THAT(queue.pop().senders.ranks(), ElementsAre(1, 2));
  EXPECT_THAT(queue.pop().senders.ranks(), ElementsAre(1, 2));
  EXPECT_THAT(queue.pop().senders.ranks(), ElementsAre(1));
  EXPECT_TRUE(queue.empty());
}

TEST(CombiningQueue, AMessageOfSeveralRanksStaysWholeAndOvertakesNoneOfThem) {
  const auto both = [](int a, int b) {
    RankSet set(a);
    set.insert(b);
    return set;
  };
  CombiningQueue queue;
  queue.push(RankSet(1), bytes_of("a"));
  queue.push(both(2, 3), bytes_of("a"));  // is combined with rank 1's
  queue.push(RankSet(3), bytes_of("b"));
  queue.push(both(3, 4), bytes_of("a"));  // rank 3's "b" comes first, so rank 4 waits as well
  EXPECT_THAT(queue.pop().senders.ranks(), ElementsAre(1, 2, 3));
  EXPECT_THAT(queue.pop().senders.ranks(), ElementsAre(3));
  EXPECT_THAT(queue.pop().senders.ranks(), ElementsAre(3, 4));
  EXPECT_TRUE(queue.empty());
}

TEST(CombiningQueue, WhatHasLeftIsNotJoined) {
  CombiningQueue queue;
  queue.push(RankSet(1), bytes_of("a"));
  queue.push(RankSet(1), bytes_of("b"));
  EXPECT_EQ(queue.pop().message, bytes_of("a"));
  queue.push(RankSet(2), bytes_of("a"));
  EXPECT_EQ(queue.pop().message, bytes_of("b"));
  EXPECT_THAT(queue.pop().senders.ranks(), ElementsAre(2));
}

/// A new message is compared with only a few of those that wait, however many they are.
TEST(CombiningQueue, AMessageThatIsFarBehindIsNotSearchedFor) {
  CombiningQueue queue;
  for (int i = 0; i < 100; ++i) queue.push(RankSet(1), bytes_of(std::to_string(i)));
  queue.push(RankSet(2), bytes_of("0"));
  queue.push(RankSet(3), bytes_of("99"));
  EXPECT_THAT(queue.pop().senders.ranks(), ElementsAre(1, 2));
  for (int i = 1; i < 100; ++i) EXPECT_THAT(queue.pop().senders.ranks(), ElementsAre(1));
  EXPECT_THAT(queue.pop().senders.ranks(), ElementsAre(3));
}

/// Each rank's messages come out in their order, whatever is pushed and popped in between.
TEST(CombiningQueue, KeepsTheOrderOfEveryRank) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    CombiningQueue queue;
    std::map<int, std::vector<Bytes>> in;
    std::map<int, std::vector<Bytes>> out;
    const auto pop = [&] {
      const CombiningQueue::Entry entry = queue.pop();
      for (const int rank : entry.senders.ranks()) out[rank].push_back(entry.message);
    };
    for (int step = 0; step < 200; ++step) {
      RankSet senders;
      for (auto left = 1 + random() % 3; left > 0; --left) {
        senders.insert(static_cast<int>(random() % 6));
      }
      const Bytes message(1 + random() % 3, std::byte{1});
      queue.push(senders, message);
      for (const int rank : senders.ranks()) in[rank].push_back(message);
      while (random() % 3 == 0 && !queue.empty()) pop();
    }
    while (!queue.empty()) pop();
    ASSERT_EQ(in, out);
  }
}

TEST(ControlFrame, ComesBackAsItWent) {
  RankSet set;
  for (const int rank : {4, 5, 7}) set.insert(rank);
  for (const RankSet& ranks : {set, RankSet()}) {
    const Bytes bytes = encode_control_frame(ranks, bytes_of("hello"));
    const ControlFrame frame = decode_control_frame(bytes, 4, 8);
    EXPECT_EQ(frame.ranks, ranks);
    EXPECT_EQ(Bytes(frame.message.begin(), frame.message.end()), bytes_of("hello"));
  }
}

Bytes ranges(const std::vector<Range>& list) {
  WireWriter out;
  out.u32(static_cast<std::uint32_t>(list.size()));
  for (const Range& range : list) {
    out.i32(range.first);
    out.i32(range.end);
  }
  return out.take();
}

TEST(ControlFrame, RanksOutsideTheGroupAndOtherSpellingsAreRefused) {
  const auto refused = [](const Bytes& bytes) {
    return expect_error(Errc::protocol, [&] { (void)decode_control_frame(bytes, 4, 8); });
  };
  EXPECT_THAT(refused(ranges({{3, 5}})), HasSubstr("do not belong between 4 and 8"));
  refused(ranges({{7, 9}}));
  refused(ranges({{-1, 5}}));
  refused(ranges({{4, 4}}));
  refused(ranges({{5, 4}}));
  refused(ranges({{4, 5}, {5, 6}}));  // should be one range
  refused(ranges({{6, 7}, {4, 5}}));
  refused(ranges({{4, 8}, {4, 8}}));
  Bytes cut = ranges({{4, 5}, {6, 7}});
  for (; !cut.empty(); cut.pop_back()) {
    if (cut.size() < 4 + 16) refused(cut);
  }
  Bytes many = ranges({{4, 5}});
  many[3] = std::byte{0x40};  // claims a billion ranges
  refused(many);
  refused({});
}

}  // namespace
}  // namespace hvd::net
