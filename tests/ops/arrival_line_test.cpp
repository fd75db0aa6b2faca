// What a rank's line in shared memory tells others, and what it cannot do to them.
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arrivals/line.hpp"
#include "arrivals/withdrawals.hpp"
#include "transport/sealed_memory.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

struct Line {
  ArrivalLine memory;
  LineWriter writer{memory};

  void come(std::uint64_t ticket) { writer.come(ticket, 10 * ticket); }
  [[nodiscard]] Presence at(std::uint64_t ticket, Fate fate = Fate::open,
                            std::uint64_t given_up = 0) const {
    return presence(memory, ticket, 10 * ticket, fate, given_up);
  }
};

TEST(ArrivalLine, TellsWhoHasComeAndWithWhat) {
  Line line;
  EXPECT_EQ(line.at(1), Presence::pending);
  line.come(4);
  EXPECT_EQ(line.at(4), Presence::came);
  EXPECT_EQ(line.at(5), Presence::pending);
  EXPECT_EQ(presence(line.memory, 4, 41, Fate::open, 0), Presence::differs);
  line.come(7);
  EXPECT_EQ(line.at(4), Presence::came);
  EXPECT_EQ(presence(line.memory, 4, 41, Fate::open, 0), Presence::differs);
  line.come(8);
  line.come(9);
  EXPECT_EQ(line.at(4), Presence::came) << "and its digest is its own affair by now";
}

TEST(ArrivalLine, ARankBeyondAGapHasNotComeToIt) {
  Line line;
  line.come(3);
  line.writer.skip(3, 6);
  EXPECT_EQ(line.at(5), Presence::pending);
  for (const std::uint64_t ticket : {10, 11, 12}) line.come(ticket);
  EXPECT_EQ(line.at(3), Presence::came);
  for (const std::uint64_t ticket : {4, 5, 6}) EXPECT_EQ(line.at(ticket), Presence::pending);
  EXPECT_EQ(line.at(7), Presence::came);
  EXPECT_EQ(line.at(12), Presence::came);
}

TEST(ArrivalLine, GapsGrowAndTheLastThreeAreKept) {
  Line line;
  line.writer.skip(0, 4);
  line.writer.skip(0, 6);
  for (const std::uint64_t ticket : {10, 20, 30}) {
    for (const std::uint64_t i : {0, 1, 2}) line.come(ticket + i);
    line.writer.skip(ticket + 2, ticket + 5);
  }
  for (const std::uint64_t i : {0, 1, 2}) line.come(40 + i);
  for (const std::uint64_t in_gap : {15, 25, 35}) EXPECT_EQ(line.at(in_gap), Presence::pending);
  for (const std::uint64_t met : {20, 30, 41}) EXPECT_EQ(line.at(met), Presence::came);
  EXPECT_EQ(line.at(6), Presence::pending) << "forgotten: cannot be told";
  EXPECT_EQ(line.at(11), Presence::pending) << "forgotten: cannot be told";
  EXPECT_EQ(line.at(11, Fate::certain), Presence::came) << "unless somebody else has said so";
}

TEST(ArrivalLine, WhatWasGivenUpIsNotTakenForMetByARankFarAhead) {
  Line line;
  line.come(5);
  EXPECT_EQ(line.at(4, Fate::given_up, 6), Presence::came);
  for (const std::uint64_t ticket : {10, 11, 12}) line.come(ticket);
  EXPECT_EQ(line.at(4, Fate::given_up, 6), Presence::pending);
  line.writer.skip(12, 14);
  EXPECT_EQ(line.at(4, Fate::given_up, 14), Presence::came) << "it knows of that, and had come";
}

TEST(ArrivalLine, IsReadWhileItChanges) {
  Line line;
  std::atomic<bool> over{false};
  std::thread owner([&] {
    for (std::uint64_t ticket = 1; ticket < 20'000; ticket += 3) {
      line.come(ticket);
      line.writer.skip(ticket, ticket + 1);
    }
    over = true;
  });
  // Of three tickets the first is met, the second in a gap.
  for (std::uint64_t ticket = 1; !over; ticket = (ticket + 1) % 20'000) {
    const Presence seen = line.at(ticket);
    EXPECT_NE(seen, Presence::differs);
    if (ticket % 3 == 2) {
      EXPECT_EQ(seen, Presence::pending) << ticket;
    }
  }
  owner.join();
}

TEST(Withdrawals, TheFirstSettlementThatReachesATicketDecidesIt) {
  Withdrawals said;
  const std::vector<int> both{0, 1};
  EXPECT_EQ(said.of(1, both), Fate::open);
  said.settle(std::vector<std::uint64_t>{5, 3});
  said.settle(std::vector<std::uint64_t>{0, 0});
  said.settle(std::vector<std::uint64_t>{0, 9});
  EXPECT_EQ(said.of(3, both), Fate::certain);
  EXPECT_EQ(said.of(4, both), Fate::dead);
  EXPECT_EQ(said.of(5, std::vector<int>{0}), Fate::certain);
  EXPECT_EQ(said.of(6, both), Fate::dead) << "rank 0 came to nothing of that";
  EXPECT_EQ(said.of(9, std::vector<int>{1, 2}), Fate::dead) << "there is no rank 2";
  EXPECT_EQ(said.of(10, both), Fate::open);
  said.withdraw(12);
  EXPECT_EQ(said.of(12, both), Fate::given_up);
  EXPECT_EQ(said.of(13, both), Fate::open);
}

TEST(SealedMemory, IsWrittenByItsOwnerOnly) {
  const SealedMemory own = SealedMemory::create("test", 4096, PeerAccess::read);
  const SealedMemory seen =
      SealedMemory::attach(UniqueFd(::dup(own.fd())), 4096, 1, PeerAccess::read);
  own.data()[7] = std::byte{42};
  EXPECT_EQ(seen.data()[7], std::byte{42});
  EXPECT_NE(::ftruncate(own.fd(), 0), 0);
  const Error error = error_of(
      [&] { (void)SealedMemory::attach(UniqueFd(::dup(own.fd())), 4096, 1, PeerAccess::write); });
  EXPECT_EQ(error.code(), Errc::resource) << "the kernel refuses to map it writable";
  EXPECT_NE(::pwrite(own.fd(), "x", 1, 0), 1);
}

}  // namespace
}  // namespace hvd::test
