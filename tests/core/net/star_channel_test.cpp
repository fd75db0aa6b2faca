#include <future>

#include <gmock/gmock.h>
#include <hvd_test/ranks.hpp>
#include <sys/socket.h>

#include "channel_ranks.hpp"
#include "net/frame.hpp"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using test::bytes_of;
using test::expect_error;
using test::expect_threads;
using test::Rank;
using test::soon;
using test::write_raw;

class StarChannelSuite : public testing::TestWithParam<int> {};

TEST_P(StarChannelSuite, MessagesArriveInOrder) {
  const int size = GetParam();
  constexpr int kCount = 500;
  const auto store = make_hash_store();
  expect_threads(size, [&](int rank) {
    Rank self(*store, rank, size);
    self.open(rank, size);
    std::vector<int> peers{0};
    if (rank == 0) {
      peers.clear();
      for (int peer = 1; peer < size; ++peer) peers.push_back(peer);
    }
    for (const int peer : peers) {  // before the other side has started to listen, perhaps
      for (int i = 0; i < kCount; ++i) {
        self.send(peer, bytes_of(std::to_string(rank) + ":" + std::to_string(i)));
      }
    }
    self.start();
    for (const int peer : peers) {
      const std::vector<Bytes> messages = self.recorder.wait_messages(peer, kCount);
      ASSERT_EQ(messages.size(), static_cast<std::size_t>(kCount));
      for (int i = 0; i < kCount; ++i) {
        ASSERT_EQ(messages[static_cast<std::size_t>(i)],
                  bytes_of(std::to_string(peer) + ":" + std::to_string(i)));
      }
    }
    // All have everything: nobody leaves while another still waits for a message.
    store->set("done/" + std::to_string(rank), {}, soon());
    for (int peer = 0; peer < size; ++peer) {
      static_cast<void>(store->wait("done/" + std::to_string(peer), soon()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, StarChannelSuite, testing::Values(1, 2, 3, 5, 8),
                         [](const auto& one) { return "np" + std::to_string(one.param); });

TEST(StarChannel, EmptyAndBigMessages) {
  const auto store = make_hash_store();
  Bytes big(std::size_t{24} << 20);
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<std::byte>(i * 131 >> 5);
  expect_threads(2, [&](int rank) {
    Rank self(*store, rank, 2);
    self.open(rank, 2);
    self.start();
    self.send(1 - rank, {});
    self.send(1 - rank, big);  // both at once: neither may wait for the other to read
    self.send(1 - rank, bytes_of("after"));
    const std::vector<Bytes> messages = self.recorder.wait_messages(1 - rank, 3);
    ASSERT_EQ(messages.size(), 3U);
    EXPECT_TRUE(messages[0].empty());
    EXPECT_TRUE(messages[1] == big);
    EXPECT_EQ(messages[2], bytes_of("after"));
    store->set("done/" + std::to_string(rank), {}, soon());
    static_cast<void>(store->wait("done/" + std::to_string(1 - rank), soon()));
  });
}

TEST(StarChannel, MessagesTooBigOrToNobodyAreRefused) {
  const auto store = make_hash_store();
  expect_threads(3, [&](int rank) {
    Rank self(*store, rank, 3);
    self.open(rank, 3);
    self.start();
    const int nobody = rank == 0 ? 3 : 3 - rank;
    expect_error(Errc::invalid_argument, [&] { self.send(nobody, {}); });
    expect_error(Errc::invalid_argument, [&] { self.send(-1, {}); });
    expect_error(Errc::invalid_argument, [&] { self.send(rank, {}); });
    expect_error(Errc::invalid_argument,
                 [&] { self.send(rank == 0 ? 1 : 0, Bytes(net::kMaxFrame + 1)); });
  });
}

TEST(StarChannel, APeersEndIsToldOnceAfterItsLastWords) {
  const auto store = make_hash_store();
  expect_threads(3, [&](int rank) {
    Rank self(*store, rank, 3);
    self.open(rank, 3);
    self.start();
    if (rank == 2) {
      self.send(0, bytes_of("last words"));
      self.close();
      return;
    }
    if (rank == 0) {
      const std::vector<std::string> causes = self.recorder.wait_lost(2);
      EXPECT_THAT(causes, testing::ElementsAre("connection closed"));
      EXPECT_THAT(self.recorder.wait_messages(2, 1), testing::ElementsAre(bytes_of("last words")));
      for (int i = 0; i < 3; ++i) self.send(2, bytes_of("into the void"));
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

TEST(StarChannel, NothingIsCalledAfterClose) {
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

/// Rank 1 that speaks raw bytes.
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

TEST(StarChannel, MalformedFramesEndTheStream) {
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

TEST(StarChannel, ACutMessageIsNotDelivered) {
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

/// Throws on what it does not understand, as a decoder does.
class Picky final : public ControlChannel::Listener {
 public:
  void on_message(int, std::span<const std::byte>) override {
    throw Error(Errc::protocol, "malformed request: odd");
  }
  void on_lost(int, const std::string& cause) override { lost.set_value(cause); }
  std::promise<std::string> lost;
};

TEST(StarChannel, AListenerThatRefusesAMessageEndsTheStream) {
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
