// Tests what `Store` promises, with one suite for every store.
#include <atomic>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <hvd_test/ranks.hpp>

#include <hvd/core/internal/store_server.hpp>
#include <hvd/core/store.hpp>

#include "expect_error.hpp"

namespace hvd {
namespace {

using test::bytes_of;
using test::expect_error;
using test::in;
using test::soon;

/// Makes several users' views of one store.
class Meeting {
 public:
  virtual ~Meeting() = default;
  virtual std::shared_ptr<Store> join(int rank) = 0;
};

class HashMeeting final : public Meeting {
 public:
  std::shared_ptr<Store> join(int) override { return store_; }

 private:
  std::shared_ptr<Store> store_ = make_hash_store();
};

class ServerMeeting final : public Meeting {
 public:
  explicit ServerMeeting(const std::string& address) : server_(loop_, address, identity(-1)) {}
  std::shared_ptr<Store> join(int rank) override {
    return connect_store(server_.address(), identity(rank), soon());
  }

 private:
  Identity identity(int rank) const { return {"job", 0, rank, secret_}; }

  Secret secret_ = Secret::random();
  EventLoop loop_;
  StoreServer server_;
};

std::unique_ptr<Meeting> make_meeting(const std::string& kind) {
  if (kind == "hash") return std::make_unique<HashMeeting>();
  return std::make_unique<ServerMeeting>(kind == "unix" ? "unix:@" : "tcp:127.0.0.1:0");
}

class StoreSuite : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Meeting> meeting_ = make_meeting(GetParam());
  std::shared_ptr<Store> store_ = meeting_->join(0);
};

TEST_P(StoreSuite, HoldsWhatWasSet) {
  EXPECT_EQ(store_->get("k", soon()), std::nullopt);
  store_->set("k", bytes_of("v"), soon());
  EXPECT_EQ(store_->get("k", soon()), bytes_of("v"));
  EXPECT_EQ(store_->wait("k", soon()), bytes_of("v"));
  EXPECT_EQ(meeting_->join(1)->get("k", soon()), bytes_of("v"));
}

TEST_P(StoreSuite, ASecondSetReplaces) {
  store_->set("k", bytes_of("old"), soon());
  store_->set("k", bytes_of("new"), soon());
  EXPECT_EQ(store_->wait("k", soon()), bytes_of("new"));
}

TEST_P(StoreSuite, EmptyAndBigValues) {
  Bytes big(std::size_t{1} << 20);
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<std::byte>(i * 31 >> 3);
  store_->set("empty", {}, soon());
  store_->set("big", big, soon());
  EXPECT_EQ(store_->get("empty", soon()), Bytes());
  EXPECT_EQ(store_->get("big", soon()), big);
}

TEST_P(StoreSuite, WhatIsTooLongOrUnprintableIsRefusedAndHarmless) {
  const Bytes too_big((std::size_t{1} << 20) + 1);
  for (const std::string& key : {std::string(), std::string(257, 'k'), std::string("a b"),
                                 std::string("a\0b", 3), std::string("\x80")}) {
    expect_error(Errc::invalid_argument, [&] { store_->set(key, {}, soon()); });
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(store_->get(key, soon())); });
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(store_->wait(key, soon())); });
  }
  expect_error(Errc::invalid_argument, [&] { store_->set("k", too_big, soon()); });
  store_->set(std::string(256, 'k'), bytes_of("v"), soon());
  EXPECT_EQ(store_->get(std::string(256, 'k'), soon()), bytes_of("v"));
}

TEST_P(StoreSuite, TimeoutNamesTheKeyAndTheStoreGoesOn) {
  const std::string text = expect_error(Errc::timeout, [&] {
    static_cast<void>(store_->wait("never/7", in(std::chrono::milliseconds(30))));
  });
  EXPECT_THAT(text, testing::HasSubstr("never/7"));
  store_->set("never/7", bytes_of("late"), soon());
  store_->set("other", bytes_of("o"), soon());
  EXPECT_EQ(store_->wait("other", soon()), bytes_of("o"));
  EXPECT_EQ(store_->wait("never/7", soon()), bytes_of("late"));
}

TEST_P(StoreSuite, WaitEndsWhenAnotherSets) {
  std::thread other([meeting = meeting_.get()] {
    const std::shared_ptr<Store> store = meeting->join(1);
    EXPECT_EQ(store->wait("first", soon()), bytes_of("1"));
    store->set("second", bytes_of("2"), soon());
  });
  store_->set("first", bytes_of("1"), soon());
  EXPECT_EQ(store_->wait("second", soon()), bytes_of("2"));
  other.join();
}

TEST_P(StoreSuite, ManyRanksExchangeManyKeys) {
  constexpr int kRanks = 8;
  constexpr int kRounds = 20;
  test::expect_threads(kRanks, [&](int rank) {
    const std::shared_ptr<Store> store = meeting_->join(rank);
    for (int round = 0; round < kRounds; ++round) {
      const auto key = [round](int r) {
        return "k" + std::to_string(round) + "/" + std::to_string(r);
      };
      store->set(key(rank), bytes_of(key(rank)), soon());
      for (int peer = 0; peer < kRanks; ++peer) {
        ASSERT_EQ(store->wait(key(peer), soon()), bytes_of(key(peer)));
      }
    }
  });
}

TEST_P(StoreSuite, WaitAllReturnsWhenTheLastOfManyIsSet) {
  constexpr int kRanks = 8;
  EXPECT_TRUE(store_->wait_all("none/", 0, soon()).empty());
  test::expect_threads(kRanks, [&](int rank) {
    const std::shared_ptr<Store> store = meeting_->join(rank);
    // The keys are set in the opposite order, so that the others exist when the first one is set.
    if (rank + 1 < kRanks) static_cast<void>(store->wait("k/" + std::to_string(rank + 1), soon()));
    const Bytes own(static_cast<std::size_t>(rank), std::byte{7});
    store->set("k/" + std::to_string(rank), own, soon());
    const std::vector<Bytes> all = store->wait_all("k/", kRanks, soon());
    ASSERT_EQ(all.size(), static_cast<std::size_t>(kRanks));
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], Bytes(i, std::byte{7}));
  });
}

TEST_P(StoreSuite, WaitAllEndsAtItsDeadline) {
  store_->set("k/0", bytes_of("v"), soon());
  expect_error(Errc::timeout, [&] {
    static_cast<void>(store_->wait_all("k/", 2, in(std::chrono::milliseconds(30))));
  });
  store_->set("k/1", bytes_of("w"), soon());
  EXPECT_EQ(store_->wait_all("k/", 2, soon()), (std::vector<Bytes>{bytes_of("v"), bytes_of("w")}));
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreSuite, testing::Values("hash", "unix", "tcp"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace hvd
