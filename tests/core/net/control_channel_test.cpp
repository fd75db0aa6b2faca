// Tests the control channel on real sockets with ranks as threads.
#include <functional>
#include <future>
#include <latch>

#include <gmock/gmock.h>
#include <hvd_test/ranks.hpp>
#include <sys/socket.h>

#include "channel_ranks.hpp"
#include "net/control_frame.hpp"
#include "net/frame.hpp"
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

/// Waits until all ranks have come here, so that none leaves while another waits for a message.
void leave_together(Store& store, int rank, int size) {
  store.set("done/" + std::to_string(rank), {}, soon());
  for (int peer = 0; peer < size; ++peer) {
    static_cast<void>(store.wait("done/" + std::to_string(peer), soon()));
  }
}

void publish(Store& store, const std::string& what) { store.set(what, {}, soon()); }
void await(Store& store, const std::string& what) { static_cast<void>(store.wait(what, soon())); }

/// Parameters: ranks and fanout. If they are equal, the tree is a star; the last one has three
/// levels below rank 0.
class ControlChannelSuite : public testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, ControlChannelSuite,
                         testing::Values(std::pair(1, 1), std::pair(2, 2), std::pair(5, 5),
                                         std::pair(8, 8), std::pair(3, 2), std::pair(4, 2),
                                         std::pair(5, 2), std::pair(8, 2), std::pair(8, 3),
                                         std::pair(8, 5), std::pair(14, 2)),
                         [](const auto& one) {
                           return "np" + std::to_string(one.param.first) + "fanout" +
                                  std::to_string(one.param.second);
                         });

/// Every second message is the same for all receivers and senders.
Bytes text(int from, int to, int i) {
  if (i % 2 == 0) return bytes_of("all:" + std::to_string(i));
  return bytes_of(std::to_string(from) + ">" + std::to_string(to) + ":" + std::to_string(i));
}

TEST_P(ControlChannelSuite, MessagesArriveInOrder) {
  const auto [size, fanout] = GetParam();
  constexpr int kCount = 300;
  const auto store = make_hash_store();
  const detail::TreeRoutes routes(size, fanout);
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
        for (const int peer : peers) self.channel->send(std::vector{peer}, text(rank, peer, i));
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

void send_empty_and_big_messages(int fanout) {
  const auto store = make_hash_store();
  Bytes big(std::size_t{24} << 20);
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<std::byte>(i * 131 >> 5);
  expect_threads(4, [&](int rank) {
    Rank self(*store, rank, 4);
    self.open(rank, 4, fanout);
    self.start();
    if (rank == 0 || rank == 2) {
      const int other = 2 - rank;
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

TEST(ControlChannel, EmptyAndBigMessages) {
  send_empty_and_big_messages(4);
  send_empty_and_big_messages(2);
}

TEST(ControlChannel, MessagesTooBigOrToNobodyAreRefused) {
  const auto store = make_hash_store();
  expect_threads(6, [&](int rank) {  // 0 (1 (2 3) 4 (5))
    Rank self(*store, rank, 6);
    self.open(rank, 6, 2);
    self.start();
    const int nobody = rank == 0 ? 6 : rank < 4 ? 5 : 1;
    expect_error(Errc::invalid_argument, [&] { self.send(nobody, {}); });
    expect_error(Errc::invalid_argument, [&] { self.send(-1, {}); });
    expect_error(Errc::invalid_argument, [&] { self.send(rank, {}); });
    expect_error(Errc::invalid_argument,
                 [&] { self.send(rank == 0 ? 1 : 0, Bytes(kMaxControlMessage + 1)); });
    leave_together(*store, rank, 6);
  });
}

/// Returns the payload of the next frame.
Bytes read_payload(int fd) {
  const net::Interrupt never;
  Bytes header(net::kFrameHeaderSize);
  EXPECT_TRUE(net::read_exact(fd, header, soon(), never));
  Bytes payload(net::decode_frame_header(header, net::FrameType::control, net::kMaxFrame).length);
  EXPECT_TRUE(net::read_exact(fd, payload, soon(), never));
  return payload;
}

TEST(ControlChannel, AMessageToSeveralRanksTravelsToARelayOnce) {
  const auto store = make_hash_store();
  expect_threads(6, [&](int rank) {  // 0 (1 (2 3) 4 (5))
    Rank self(*store, rank, 6);
    if (rank == 1) {
      const UniqueFd fd = self.network.open(0, "control", soon());
      const Bytes first = read_payload(fd.get());
      const net::ControlFrame all = net::decode_control_frame(first, 1, 4);
      EXPECT_THAT(all.ranks.ranks(), ElementsAre(1, 2, 3));
      EXPECT_EQ(Bytes(all.message.begin(), all.message.end()), bytes_of("all"));
      const Bytes second = read_payload(fd.get());
      EXPECT_THAT(net::decode_control_frame(second, 1, 4).ranks.ranks(), ElementsAre(2));
    } else if (rank == 0 || rank > 3) {
      self.open(rank, 6, 2);
      self.start();
    }
    if (rank == 0) {
      self.send({1, 2, 3, 4, 5}, bytes_of("all"));
      self.send(2, bytes_of("one"));
    }
    leave_together(*store, rank, 6);
  });
}

TEST(ControlChannel, EqualMessagesTravelOnceWhileTheStreamToRank0IsFull) {
  const auto store = make_hash_store();
  expect_threads(6, [&](int rank) {  // 0 (1 (2 3) 4 (5))
    Rank self(*store, rank, 6);
    if (rank == 0) {
      const UniqueFd fd = self.network.open(1, "control", soon());
      await(*store, "all-sent");
      EXPECT_EQ(read_payload(fd.get()).size(), (std::size_t{8} << 20) + 12);  // the relay's
      const Bytes merged = read_payload(fd.get());
      EXPECT_THAT(net::decode_control_frame(merged, 1, 4).ranks.ranks(), ElementsAre(2, 3));
    } else if (rank == 1) {
      self.open(rank, 6, 2);
      self.send(0, Bytes(std::size_t{8} << 20));  // more than a socket takes
      self.start();
      for (const int member : {2, 3}) {
        static_cast<void>(self.recorder.wait_messages(member, 1));
      }
      publish(*store, "all-sent");
    } else if (rank == 2 || rank == 3) {
      self.open(rank, 6, 2);
      self.start();
      self.send(0, bytes_of("like all"));
      self.send(1, bytes_of("sent"));
    }
    leave_together(*store, rank, 6);
  });
}

TEST(ControlChannel, ARelayLearnsOfAMembersEndAfterItsLastMessages) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {  // 0 (1 (2) 3)
    Rank self(*store, rank, 4);
    self.open(rank, 4, 2);
    self.start();
    if (rank == 2) {
      self.send(1, bytes_of("relay"));
      self.send(0, bytes_of("root"));
      self.close();
      self.close();
      self.send(0, bytes_of("dropped"));
    } else if (rank == 1) {
      EXPECT_THAT(self.recorder.wait_lost(2), ElementsAre("connection closed"));
      EXPECT_THAT(self.recorder.wait_messages(2, 1), ElementsAre(bytes_of("relay")));
      self.send(0, bytes_of("go on"));
      static_cast<void>(self.recorder.wait_messages(0, 1));
      self.send(2, bytes_of("dropped"));
    } else if (rank == 0) {
      EXPECT_THAT(self.recorder.wait_messages(2, 1), ElementsAre(bytes_of("root")));
      EXPECT_THAT(self.recorder.wait_messages(1, 1), ElementsAre(bytes_of("go on")));
      self.send(2, bytes_of("dropped"));
      self.send(1, bytes_of("you too"));
      EXPECT_TRUE(self.recorder.lost(2).empty() && self.recorder.lost(1).empty());
    }
    leave_together(*store, rank, 4);
  });
}

TEST(ControlChannel, BothSidesLearnOfARelaysEnd) {
  const auto store = make_hash_store();
  expect_threads(6, [&](int rank) {  // 0 (1 (2 3) 4 (5))
    Rank self(*store, rank, 6);
    self.open(rank, 6, 2);
    self.start();
    if (rank == 1) {
      for (const int peer : {0, 2, 3}) self.send(peer, bytes_of("last message"));
      self.close();
    } else if (rank == 0 || rank == 2 || rank == 3) {
      EXPECT_THAT(self.recorder.wait_lost(1), ElementsAre("connection closed"));
      EXPECT_THAT(self.recorder.wait_messages(1, 1), ElementsAre(bytes_of("last message")));
    }
    if (rank == 0) {
      for (const int peer : {2, 3, 4, 5}) EXPECT_TRUE(self.recorder.lost(peer).empty());
    }
    leave_together(*store, rank, 6);
  });
}

TEST(ControlChannel, TheLastMessageOfRank0ReachesTheMembersThoughTheRelayLeaves) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {  // 0 (1 (2) 3)
    Rank self(*store, rank, 4);
    self.open(rank, 4, 2);
    self.start();
    if (rank == 0) {
      self.loop.run_sync([&] {
        self.channel->send(std::vector{1, 2, 3}, bytes_of("last"));
        self.channel->close();
      });
    } else {
      EXPECT_THAT(self.recorder.wait_messages(0, 1), ElementsAre(bytes_of("last")));
      if (rank == 1) {
        EXPECT_THAT(self.recorder.wait_lost(0), ElementsAre("connection closed"));
      }
      self.close();
    }
    leave_together(*store, rank, 4);
  });
}

/// Rank 0 sends its verdict and then wakes its user, whose process may end before the loop's next
/// turn. A rank without the verdict would blame rank 0.
TEST(ControlChannel, WhatRank0SendsHasLeftItWhenSendReturns) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {  // 0 (1 (2) 3)
    Rank self(*store, rank, 4);
    if (rank == 1) {
      const UniqueFd fd = self.network.open(0, "control", soon());
      await(*store, "sent");
      std::byte byte{};
      EXPECT_EQ(::recv(fd.get(), &byte, 1, MSG_DONTWAIT), 1) << "nothing has come";
      publish(*store, "looked");
    } else if (rank == 0 || rank == 3) {
      self.open(rank, 4, 2);
      self.start();
    }
    if (rank == 0) {
      self.loop.run_sync([&] {
        self.channel->send(std::vector{2}, bytes_of("verdict"));
        publish(*store, "sent");
        await(*store, "looked");  // the loop's turn is not over before
      });
    }
    leave_together(*store, rank, 4);
  });
}

/// The relay 1 of `0 (1 (2) 3)` sends `payload` to rank 0, which ends the stream.
void expect_refused_by_root(const Bytes& payload) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {
    Rank self(*store, rank, 4);
    if (rank == 1) {
      const UniqueFd fd = self.network.open(0, "control", soon());
      write_raw(fd.get(), net::encode_frame(net::FrameType::control, payload));
      // Rank 0 has closed the stream, so this side sees its end, too.
      Bytes byte(1);
      const net::Interrupt never;
      EXPECT_THROW((void)net::read_exact(fd.get(), byte, soon(), never), net::StreamLost);
      await(*store, "checked");
    } else if (rank == 0 || rank == 3) {
      self.open(rank, 4, 2);
      self.start();
    }
    if (rank == 0) {
      EXPECT_THAT(self.recorder.wait_lost(1), ElementsAre(StartsWith("protocol violation: ")));
      publish(*store, "checked");
    }
    leave_together(*store, rank, 4);
  });
}

TEST(ControlChannel, RelaysThatSendForOthersAreRefused) {
  net::RankSet others(2);
  others.insert(3);
  expect_refused_by_root(net::encode_control_frame(others, bytes_of("x")));
  expect_refused_by_root(net::encode_control_frame(net::RankSet(4), bytes_of("x")));
  expect_refused_by_root(net::encode_control_frame(net::RankSet(), bytes_of("x")));
  expect_refused_by_root({});
}

TEST(ControlChannel, MalformedFramesOfRank0AndOfAMemberEndTheirStreams) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {  // 0 (1 (2) 3)
    Rank self(*store, rank, 4);
    if (rank == 0) {
      const UniqueFd fd = self.network.open(1, "control", soon());
      const Bytes bad = net::encode_control_frame(net::RankSet(3), bytes_of("x"));
      write_raw(fd.get(), net::encode_frame(net::FrameType::control, bad));
      await(*store, "checked");
    } else if (rank == 2) {
      const UniqueFd fd = self.network.open(1, "control", soon());
      write_raw(fd.get(), net::encode_frame(net::FrameType::control, Bytes{std::byte{7}}));
      await(*store, "checked");
    } else if (rank == 1) {
      self.open(rank, 4, 2);
      self.start();
      EXPECT_THAT(self.recorder.wait_lost(0), ElementsAre(HasSubstr("ranks 3 to 4 do not belong")));
      EXPECT_THAT(self.recorder.wait_lost(2), ElementsAre(StartsWith("protocol violation: ")));
      publish(*store, "checked");
    }
    leave_together(*store, rank, 4);
  });
}

/// Makes `self` the relay 1 of `0 (1 (2) 3)`, which limits how much its neighbours leave unread.
void open_small_relay(Rank& self) {
  self.channel = make_control_channel(self.loop, self.network, 1, 4, 2, soon(), kSmall);
}

TEST(ControlChannel, AMemberThatReadsNothingIsGivenUp) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {
    Rank self(*store, rank, 4);
    if (rank == 0 || rank == 2) {
      const UniqueFd fd = self.network.open(1, "control", soon());
      await(*store, "checked");
    } else if (rank == 1) {
      open_small_relay(self);
      self.start();
      for (int i = 0; i < 9; ++i) self.send(2, Bytes(kSmall / 2));
      EXPECT_THAT(self.recorder.wait_lost(2), ElementsAre(HasSubstr("bytes wait to be read")));
      publish(*store, "checked");
    }
    leave_together(*store, rank, 4);
  });
}

TEST(ControlChannel, AMemberThatSendsMoreThanRank0ReadsIsGivenUp) {
  const auto store = make_hash_store();
  expect_threads(4, [&](int rank) {
    Rank self(*store, rank, 4);
    if (rank == 0) {
      const UniqueFd fd = self.network.open(1, "control", soon());
      await(*store, "checked");
    } else if (rank == 1) {
      open_small_relay(self);
      self.start();
      EXPECT_THAT(self.recorder.wait_lost(2), ElementsAre(HasSubstr("more than rank 0 reads")));
      publish(*store, "checked");
    } else if (rank == 2) {
      const UniqueFd fd = self.network.open(1, "control", soon());
      const auto flood = [&] {
        for (int i = 0;; ++i) {  // no two alike
          const Bytes other(kSmall / 2 + static_cast<std::size_t>(i));
          write_raw(fd.get(), net::encode_frame(net::FrameType::control,
                                                net::encode_control_frame(net::RankSet(2), other)));
        }
      };
      EXPECT_THROW(flood(), net::StreamLost);
    }
    leave_together(*store, rank, 4);
  });
}

TEST(ControlChannel, ANeighboursEndIsReportedOnceAfterItsLastMessages) {
  const auto store = make_hash_store();
  expect_threads(3, [&](int rank) {
    Rank self(*store, rank, 3);
    self.open(rank, 3);
    self.start();
    if (rank == 2) {
      self.send(0, bytes_of("last message"));
      self.close();
      return;
    }
    if (rank == 0) {
      const std::vector<std::string> causes = self.recorder.wait_lost(2);
      EXPECT_THAT(causes, testing::ElementsAre("connection closed"));
      EXPECT_THAT(self.recorder.wait_messages(2, 1),
                  testing::ElementsAre(bytes_of("last message")));
      for (int i = 0; i < 3; ++i) self.send(2, bytes_of("dropped"));
      self.send(1, bytes_of("go"));  // the others are untouched
      EXPECT_THAT(self.recorder.wait_messages(1, 1), testing::ElementsAre(bytes_of("ok")));
      EXPECT_EQ(self.recorder.lost(2).size(), 1U);
      EXPECT_TRUE(self.recorder.lost(1).empty());
    } else {
      static_cast<void>(self.recorder.wait_messages(0, 1));
      self.send(0, bytes_of("ok"));
      static_cast<void>(self.recorder.wait_lost(0));  // rank 0 leaves last
    }
  });
}

TEST(ControlChannel, NothingIsCalledAfterClose) {
  const auto store = make_hash_store();
  std::promise<void> closed;
  expect_threads(2, [&](int rank) {
    Rank self(*store, rank, 2);
    self.open(rank, 2);
    self.start();
    if (rank == 0) {
      self.close();
      self.close();
      self.send(1, bytes_of("dropped"));
      closed.set_value();
    } else {
      ASSERT_EQ(closed.get_future().wait_for(30s), std::future_status::ready);
      static_cast<void>(self.recorder.wait_lost(0));
      self.send(0, bytes_of("dropped"));
    }
    self.loop.run_sync([] {});
    EXPECT_TRUE(rank == 1 || self.recorder.lost(1).empty());
  });
}

/// Runs two ranks. Rank 1 writes raw bytes to rank 0, and `check` gets the causes for which rank 0
/// counts it as lost.
void with_raw_peer(const std::function<void(int fd)>& speak,
                   const std::function<void(const std::vector<std::string>&)>& check) {
  const auto store = make_hash_store();
  expect_threads(2, [&](int rank) {
    Rank self(*store, rank, 2);
    if (rank == 1) {
      const UniqueFd fd = self.network.open(0, "control", soon());
      speak(fd.get());
      static_cast<void>(store->wait("checked", soon()));
    } else {
      self.open(0, 2);
      self.start();
      check(self.recorder.wait_lost(1));
      store->set("checked", {}, soon());
    }
  });
}

TEST(ControlChannel, MalformedFramesEndTheStream) {
  Bytes long_frame = net::encode_frame(net::FrameType::control, {});
  long_frame[11] = std::byte{0x7f};  // the length, far beyond the limit
  for (const Bytes& bad : {bytes_of("these are not the bytes of a frame"), long_frame,
                           net::encode_frame(net::FrameType::store_reply, bytes_of("x"))}) {
    with_raw_peer([&](int fd) { write_raw(fd, bad); },
                  [](const std::vector<std::string>& causes) {
                    ASSERT_EQ(causes.size(), 1U);
                    EXPECT_THAT(causes[0], testing::StartsWith("protocol violation: "));
                  });
  }
}

TEST(ControlChannel, ACutMessageIsNotDelivered) {
  const Bytes frame = net::encode_frame(net::FrameType::control, bytes_of("whole"));
  with_raw_peer(
      [&](int fd) {
        write_raw(fd, Bytes(frame.begin(), frame.end() - 1));
        ::shutdown(fd, SHUT_WR);
      },
      [](const std::vector<std::string>& causes) {
        EXPECT_THAT(causes, testing::ElementsAre("connection closed in the middle of a message"));
      });
}

/// Throws at every message, as a decoder does at one that it does not understand.
class Picky final : public ControlChannel::Listener {
 public:
  void on_message(const std::vector<int>&, std::span<const std::byte>) override {
    throw Error(Errc::protocol, "malformed request: odd");
  }
  void on_lost(int, const std::string& cause) override { lost.set_value(cause); }
  std::promise<std::string> lost;
};

TEST(ControlChannel, AListenerThatRefusesAMessageEndsTheStream) {
  const auto store = make_hash_store();
  expect_threads(2, [&](int rank) {
    Rank self(*store, rank, 2);
    self.open(rank, 2);
    if (rank == 1) {
      self.start();
      self.send(0, bytes_of("odd"));
      static_cast<void>(self.recorder.wait_lost(0));
      return;
    }
    Picky picky;
    self.loop.run_sync([&] { self.channel->start(picky); });
    auto lost = picky.lost.get_future();
    ASSERT_EQ(lost.wait_for(30s), std::future_status::ready);
    EXPECT_EQ(lost.get(), "protocol violation: malformed request: odd");
    self.close();
  });
}

}  // namespace
}  // namespace hvd
