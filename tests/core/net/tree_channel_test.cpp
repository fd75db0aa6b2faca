// The control tree on real sockets, ranks as threads.
#include "net/tree_channel.hpp"

#include <functional>
#include <future>
#include <latch>

#include <gmock/gmock.h>
#include <hvd_test/ranks.hpp>

#include "channel_ranks.hpp"
#include "net/frame.hpp"
#include "net/tree_frame.hpp"
#include "net/tree_routes.hpp"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using test::bytes_of;
using test::expect_error;
using test::expect_threads;
using test::Rank;
using test::soon;
using test::write_raw;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::size_t kSmall = std::size_t{1} << 20;

/// Nobody leaves while another still waits for something.
void leave_together(Store& store, int rank, int size) {
  store.set("done/" + std::to_string(rank), {}, soon());
  for (int peer = 0; peer < size; ++peer) {
    static_cast<void>(store.wait("done/" + std::to_string(peer), soon()));
  }
}

/// A set flag of the test's own.
void say(Store& store, const std::string& what) { store.set(what, {}, soon()); }
void await(Store& store, const std::string& what) { static_cast<void>(store.wait(what, soon())); }

/// Ranks and fanout.
class TreeChannelSuite : public testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, TreeChannelSuite,
                         testing::Values(std::pair(3, 2), std::pair(4, 2), std::pair(5, 2),
                                         std::pair(8, 2), std::pair(8, 3), std::pair(8, 5)),
                         [](const auto& one) {
                           return "np" + std::to_string(one.param.first) + "fanout" +
                                  std::to_string(one.param.second);
                         });

/// Every other message is the same for all, or of all.
Bytes text(int from, int to, int i) {
  if (i % 2 == 0) return bytes_of("all:" + std::to_string(i));
  return bytes_of(std::to_string(from) + ">" + std::to_string(to) + ":" + std::to_string(i));
}

TEST_P(TreeChannelSuite, MessagesArriveInOrder) {
  const auto [size, fanout] = GetParam();
  constexpr int kCount = 300;
  const auto store = make_hash_store();
  const TreeRoutes routes(size, fanout);
  expect_threads(size, [&, size = size, fanout = fanout](int rank) {
    Rank self(*store, rank, size);
    self.open(rank, size, fanout);
    std::vector<int> peers = routes.children(rank);
    if (rank == 0) {
      peers.clear();
      for (int peer = 1; peer < size; ++peer) peers.push_back(peer);
    } else {
      peers.push_back(0);
      if (routes.parent(rank) != 0) peers.push_back(routes.parent(rank));
    }
    for (int i = 0; i < kCount; ++i) {  // before the other side has started to listen, perhaps
      self.loop.run_sync([&] {
        for (const int peer : peers) self.channel->send(peer, text(rank, peer, i));
      });
    }
    self.start();
    for (const int peer : peers) {
      const std::vector<Bytes> messages = self.recorder.wait_messages(peer, kCount);
      ASSERT_EQ(messages.size(), static_cast<std::size_t>(kCount));
      for (int i = 0; i < kCount; ++i) {
        ASSERT_EQ(messages[static_cast<std::size_t>(i)], text(peer, rank, i));
      }
    }
    leave_together(*store, rank, size);
  });
}

TEST(TreeChannel, EmptyAndBigMessages) {
  const auto store = make_hash_store();
  Bytes big(std::size_t{24} << 20);
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<std::byte>(i * 131 >> 5);
  expect_threads(4, [&](int rank) {  // 0 1 | 2 3
    Rank self(*store, rank, 4);
    self.open(rank, 4, 2);
    self.start();
    if (rank == 0 || rank == 3) {
      const int other = 3 - rank;
      self.send(other, {});
      self.send(other, big);  // both at once: neither may wait for the other to read
      self.send(other, bytes_of("after"));
      const std::vector<Bytes> messages = self.recorder.wait_messages(other, 3);
      ASSERT_EQ(messages.size(), 3U);
      EXPECT_TRUE(messages[0].empty());
      EXPECT_TRUE(messages[1] == big);
      EXPECT_EQ(messages[2], bytes_of("after"));
    }
    leave_together(*store, rank, 4);
  });
}

TEST(TreeChannel, MessagesTooBigOrToNobodyAreRefused) {
  const auto store = make_hash_store();
  expect_threads(6, [&](int rank) {  // 0 1 | 2 3 | 4 5
    Rank self(*store, rank, 6);
    self.open(rank, 6, 2);
    self.start();
    const int nobody = rank == 0 ? 6 : rank < 4 ? 5 : 1;
    expect_error(Errc::invalid_argument, [&] { self.send(nobody, {}); });
    expect_error(Errc::invalid_argument, [&] { self.send(-1, {}); });
    expect_error(Errc::invalid_argument, [&] { self.send(rank, {}); });
    expect_error(Errc::invalid_argument,
                 [&] { self.send(rank == 0 ? 1 : 0, Bytes(net::kMaxTreeMessage + 1)); });
    leave_together(*store, rank, 6);
  });
}

/// The next frame's payload.
Bytes read_payload(int fd) {
  const net::Interrupt never;
  Bytes header(net::kFrameHeaderSize);
  EXPECT_TRUE(net::read_exact(fd, header, soon(), never));
  Bytes payload(net::decode_frame_header(header, net::FrameType::control, net::kMaxFrame).length);
  EXPECT_TRUE(net::read_exact(fd, payload, soon(), never));
  return payload;
}

TEST(TreeChannel, WhatIsSaidToAllInOneTurnTravelsToARelayOnce) {
  const auto store = make_hash_store();
  expect_threads(6, [&](int rank) {  // 0 1 2 | 3 4 5
    Rank self(*store, rank, 6);
    if (rank == 3) {
      const UniqueFd fd = self.network.open(0, "control", soon());
      const Bytes first = read_payload(fd.get());
      const net::GroupFrame all = net::decode_group_frame(first, 3, 6);
      EXPECT_THAT(all.ranks.ranks(), ElementsAre(3, 4, 5));
      EXPECT_EQ(Bytes(all.message.begin(), all.message.end()), bytes_of("all"));
      const Bytes second = read_payload(fd.get());
      EXPECT_THAT(net::decode_group_frame(second, 3, 6).ranks.ranks(), ElementsAre(4));
    } else if (rank < 3) {
      self.open(rank, 6, 3);
      self.start();
    }
    if (rank == 0) {
      self.loop.run_sync([&] {
        for (int peer = 1; peer < 6; ++peer) self.channel->send(peer, bytes_of("all"));
        self.channel->send(4, bytes_of("one"));
      });
    }
    leave_together(*store, rank, 6);
  });
}

TEST(TreeChannel, WhatMembersSayWhileTheWayUpIsFullTravelsOnce) {
  const auto store = make_hash_store();
  expect_threads(6, [&](int rank) {  // 0 1 2 | 3 4 5
    Rank self(*store, rank, 6);
    if (rank == 0) {
      const UniqueFd fd = self.network.open(3, "control", soon());
      await(*store, "all-said");
      EXPECT_EQ(read_payload(fd.get()).size(), (std::size_t{8} << 20) + 12);  // the relay's
      const Bytes merged = read_payload(fd.get());
      EXPECT_THAT(net::decode_group_frame(merged, 3, 6).ranks.ranks(), ElementsAre(4, 5));
    } else if (rank == 3) {
      self.open(rank, 6, 3);
      self.send(0, Bytes(std::size_t{8} << 20));  // more than a socket takes
      self.start();
      for (const int member : {4, 5}) {
        static_cast<void>(self.recorder.wait_messages(member, 1));
      }
      say(*store, "all-said");
    } else if (rank > 3) {
      self.open(rank, 6, 3);
      self.start();
      self.send(0, bytes_of("like all"));
      self.send(3, bytes_of("said"));
    }
    leave_together(*store, rank, 6);
  });
}

TEST(TreeChannel, AMembersEndIsToldToItsRelayAfterItsLastWords) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {  // 0 1 | 2 3
    Rank self(*store, rank, 4);
    self.open(rank, 4, 2);
    self.start();
    if (rank == 3) {
      self.send(2, bytes_of("relay"));
      self.send(0, bytes_of("root"));
      self.close();
      self.close();
      self.send(0, bytes_of("dropped"));
    } else if (rank == 2) {
      EXPECT_THAT(self.recorder.wait_lost(3), ElementsAre("connection closed"));
      EXPECT_THAT(self.recorder.wait_messages(3, 1), ElementsAre(bytes_of("relay")));
      self.send(0, bytes_of("go on"));
      static_cast<void>(self.recorder.wait_messages(0, 1));
      self.send(3, bytes_of("into the void"));
    } else if (rank == 0) {
      EXPECT_THAT(self.recorder.wait_messages(3, 1), ElementsAre(bytes_of("root")));
      EXPECT_THAT(self.recorder.wait_messages(2, 1), ElementsAre(bytes_of("go on")));
      self.send(3, bytes_of("into the void"));
      self.send(2, bytes_of("you too"));
      EXPECT_TRUE(self.recorder.lost(3).empty() && self.recorder.lost(2).empty());
    }
    leave_together(*store, rank, 4);
  });
}

TEST(TreeChannel, ARelaysEndIsToldToBothSides) {
  const auto store = make_hash_store();
  expect_threads(6, [&](int rank) {  // 0 1 2 | 3 4 5
    Rank self(*store, rank, 6);
    self.open(rank, 6, 3);
    self.start();
    if (rank == 3) {
      for (const int peer : {0, 4, 5}) self.send(peer, bytes_of("last words"));
      self.close();
    } else if (rank == 0 || rank > 3) {
      EXPECT_THAT(self.recorder.wait_lost(3), ElementsAre("connection closed"));
      EXPECT_THAT(self.recorder.wait_messages(3, 1), ElementsAre(bytes_of("last words")));
    }
    if (rank == 0) {
      for (const int peer : {1, 2, 4, 5}) EXPECT_TRUE(self.recorder.lost(peer).empty());
    }
    leave_together(*store, rank, 6);
  });
}

TEST(TreeChannel, WhatRank0SaysLastReachesTheMembersThoughTheRelayLeaves) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {  // 0 1 | 2 3
    Rank self(*store, rank, 4);
    self.open(rank, 4, 2);
    self.start();
    if (rank == 0) {
      self.loop.run_sync([&] {
        for (int peer = 1; peer < 4; ++peer) self.channel->send(peer, bytes_of("farewell"));
        self.channel->close();
      });
    } else {
      EXPECT_THAT(self.recorder.wait_messages(0, 1), ElementsAre(bytes_of("farewell")));
      if (rank == 2) {
        EXPECT_THAT(self.recorder.wait_lost(0), ElementsAre("connection closed"));
      }
      self.close();
    }
    leave_together(*store, rank, 4);
  });
}

/// Rank 2 of `0 1 | 2 3` says `payload` to rank 0, and rank 0 what it thinks of it.
void expect_refused_by_root(const Bytes& payload) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {
    Rank self(*store, rank, 4);
    if (rank == 2) {
      const UniqueFd fd = self.network.open(0, "control", soon());
      write_raw(fd.get(), net::encode_frame(net::FrameType::control, payload));
      // Nothing of it is left open: this side sees the end, too.
      Bytes byte(1);
      const net::Interrupt never;
      EXPECT_THROW((void)net::read_exact(fd.get(), byte, soon(), never), net::StreamLost);
      await(*store, "checked");
    } else if (rank < 2) {
      self.open(rank, 4, 2);
      self.start();
    }
    if (rank == 0) {
      EXPECT_THAT(self.recorder.wait_lost(2), ElementsAre(StartsWith("protocol violation: ")));
      say(*store, "checked");
    }
    leave_together(*store, rank, 4);
  });
}

TEST(TreeChannel, RelaysThatSpeakForOthersAreRefused) {
  net::RankSet others(3);
  others.insert(1);
  expect_refused_by_root(net::encode_group_frame(others, bytes_of("x")));
  expect_refused_by_root(net::encode_group_frame(net::RankSet(4), bytes_of("x")));
  expect_refused_by_root({});
}

TEST(TreeChannel, MalformedFramesOfRank0AndOfAMemberEndTheirStreams) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {  // 0 1 | 2 3
    Rank self(*store, rank, 4);
    if (rank == 0) {
      const UniqueFd fd = self.network.open(2, "control", soon());
      const Bytes bad = net::encode_group_frame(net::RankSet(1), bytes_of("x"));
      write_raw(fd.get(), net::encode_frame(net::FrameType::control, bad));
      await(*store, "checked");
    } else if (rank == 3) {
      const UniqueFd fd = self.network.open(2, "control", soon());
      write_raw(fd.get(), net::encode_frame(net::FrameType::control, Bytes{std::byte{7}}));
      await(*store, "checked");
    } else if (rank == 2) {
      self.open(rank, 4, 2);
      self.start();
      EXPECT_THAT(self.recorder.wait_lost(0), ElementsAre(HasSubstr("ranks 1 to 2 do not belong")));
      EXPECT_THAT(self.recorder.wait_lost(3), ElementsAre(HasSubstr("value out of range")));
      say(*store, "checked");
    }
    leave_together(*store, rank, 4);
  });
}

/// The relay 2 of `0 1 | 2 3`, with little room.
void open_small_relay(Rank& self) {
  const TreeRoutes routes(4, 2);
  self.channel = net::make_tree_relay({self.loop, self.network, routes, 2, soon(), kSmall});
}

TEST(TreeChannel, AMemberThatReadsNothingIsGivenUp) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {
    Rank self(*store, rank, 4);
    if (rank == 0 || rank == 3) {
      const UniqueFd fd = self.network.open(2, "control", soon());
      await(*store, "checked");
    } else if (rank == 2) {
      open_small_relay(self);
      self.start();
      for (int i = 0; i < 9; ++i) self.send(3, Bytes(kSmall / 2));
      EXPECT_THAT(self.recorder.wait_lost(3), ElementsAre(HasSubstr("bytes wait to be read")));
      say(*store, "checked");
    }
    leave_together(*store, rank, 4);
  });
}

TEST(TreeChannel, AMemberThatSaysMoreThanRank0ReadsIsGivenUp) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {
    Rank self(*store, rank, 4);
    if (rank == 0) {
      const UniqueFd fd = self.network.open(2, "control", soon());
      await(*store, "checked");
    } else if (rank == 2) {
      open_small_relay(self);
      self.start();
      EXPECT_THAT(self.recorder.wait_lost(3), ElementsAre(HasSubstr("more than rank 0 reads")));
      say(*store, "checked");
    } else if (rank == 3) {
      const UniqueFd fd = self.network.open(2, "control", soon());
      const auto flood = [&] {
        for (int i = 0;; ++i) {  // no two alike
          const Bytes other(kSmall / 2 + static_cast<std::size_t>(i));
          write_raw(fd.get(), net::encode_frame(net::FrameType::control,
                                                net::encode_member_frame(false, other)));
        }
      };
      EXPECT_THROW(flood(), net::StreamLost);
    }
    leave_together(*store, rank, 4);
  });
}

}  // namespace
}  // namespace hvd
