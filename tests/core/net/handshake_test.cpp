#include "net/handshake.hpp"

#include <optional>

#include <gmock/gmock.h>

#include "expect_error.hpp"

namespace hvd::net {
namespace {

using test::expect_error;
using testing::HasSubstr;

constexpr std::string_view kLabel = "ring/0";

Identity identity(int rank, const Secret& secret) { return {"job-7", 3, rank, secret}; }

/// Passes the messages of two handshakes to each other; `on_wire` may change what a side sends (0:
/// client, 1: server). `run` throws what either handshake throws.
struct Talk {
  Handshake client;
  Handshake server;
  std::vector<Bytes> from_client;
  std::vector<Bytes> from_server;

  void run(const std::function<void(int, Bytes&)>& on_wire = {}) {
    Bytes to_server;
    Bytes to_client;
    for (int round = 0; round < 8 && !(client.done() && server.done()); ++round) {
      move(client, 0, from_client, to_server, on_wire);
      feed(server, to_server);
      move(server, 1, from_server, to_client, on_wire);
      feed(client, to_client);
    }
  }

 private:
  static void move(Handshake& from, int side, std::vector<Bytes>& record, Bytes& to,
                   const std::function<void(int, Bytes&)>& on_wire) {
    Bytes output = from.take_output();
    if (output.empty()) return;
    record.push_back(output);
    if (on_wire) on_wire(side, output);
    to.insert(to.end(), output.begin(), output.end());
  }
  static void feed(Handshake& to, Bytes& input) {
    while (to.wanted() > 0 && input.size() >= to.wanted()) {
      const auto end = input.begin() + static_cast<std::ptrdiff_t>(to.wanted());
      const Bytes piece(input.begin(), end);
      input.erase(input.begin(), end);
      to.consume(piece);
    }
  }
};

Talk talk_between(const Identity& client, const Identity& server, int wanted = 0) {
  return {Handshake::client(client, wanted, kLabel, fresh_nonce()),
          Handshake::server(server, fresh_nonce()),
          {},
          {}};
}

TEST(Handshake, BothSidesLearnWhoTheOtherIs) {
  const Secret secret = Secret::random();
  Talk talk = talk_between(identity(2, secret), identity(0, secret));
  talk.run();
  ASSERT_TRUE(talk.client.done());
  ASSERT_TRUE(talk.server.done());
  EXPECT_EQ(talk.server.peer().from, 2);
  EXPECT_EQ(talk.server.peer().label, kLabel);
  EXPECT_EQ(talk.client.peer().from, 0);
  EXPECT_EQ(talk.client.wanted(), 0U);
  EXPECT_EQ(talk.server.wanted(), 0U);
}

TEST(Handshake, AnyRankReachesWhoeverListens) {
  const Secret secret = Secret::random();
  Talk talk = talk_between(identity(2, secret), identity(-1, secret), kAnyRank);
  talk.run();
  EXPECT_TRUE(talk.client.done());
  EXPECT_TRUE(talk.server.done());
  EXPECT_EQ(talk.client.peer().from, -1);
}

TEST(Handshake, MessagesHaveFixedSizes) {
  const Secret secret = Secret::random();
  Talk talk = talk_between(identity(2, secret), identity(0, secret));
  talk.run();
  ASSERT_EQ(talk.from_client.size(), 2U);
  ASSERT_EQ(talk.from_server.size(), 2U);
  EXPECT_EQ(talk.from_client[0].size(), kHelloSize);
  EXPECT_EQ(talk.from_server[0].size(), kHelloSize + kMacSize);
  EXPECT_EQ(talk.from_client[1].size(), kMacSize);
  EXPECT_EQ(talk.from_server[1].size(), kMacSize);
}

TEST(Handshake, AnotherSecretIsUnauthenticated) {
  Talk talk = talk_between(identity(2, Secret::random()), identity(0, Secret::random()));
  const std::string text = expect_error(Errc::unauthenticated, [&] { talk.run(); });
  EXPECT_THAT(text, HasSubstr("rank 0"));
  EXPECT_FALSE(talk.client.done());
  EXPECT_FALSE(talk.server.done());
}

// The server also checks that the client knows the secret.
TEST(Handshake, ServerRefusesAClientWithoutTheSecret) {
  const Secret secret = Secret::random();
  Handshake server = Handshake::server(identity(0, secret), fresh_nonce());
  Handshake client = Handshake::client(identity(2, Secret()), 0, kLabel, fresh_nonce());
  const Bytes hello = client.take_output();
  server.consume(std::span(hello).first(kPrefixSize));
  server.consume(std::span(hello).subspan(kPrefixSize));
  expect_error(Errc::unauthenticated, [&] { server.consume(Bytes(kMacSize)); });
  EXPECT_FALSE(server.done());
}

TEST(Handshake, AnotherJobEpochOrRankIsNamedOnBothSides) {
  const Secret secret = Secret::random();
  struct Case {
    Identity server;
    std::string here;
    std::string there;
  };
  for (const Case& one : {Case{{"job-8", 3, 0, secret}, "job-7", "job-8"},
                          Case{{"job-7", 4, 0, secret}, "3 here", "4 there"},
                          Case{{"job-7", 3, 1, secret}, "rank 0", "rank 1"}}) {
    Talk talk = talk_between(identity(2, secret), one.server);
    expect_error(Errc::protocol, [&] { talk.run(); });  // the server notices first …
    const Bytes said = talk.server.take_output();
    ASSERT_EQ(said.size(), kHelloSize);  // … and says who it is without proving anything
    talk.client.consume(std::span(said).first(kPrefixSize));
    const std::string text = expect_error(
        Errc::protocol, [&] { talk.client.consume(std::span(said).subspan(kPrefixSize)); });
    EXPECT_THAT(text, testing::AllOf(HasSubstr(one.here), HasSubstr(one.there)));
  }
}

TEST(Handshake, AnotherVersionIsNamedOnBothSides) {
  const Secret secret = Secret::random();
  Talk talk = talk_between(identity(2, secret), identity(0, secret));
  const std::string text = expect_error(Errc::protocol, [&] {
    talk.run([](int side, Bytes& bytes) {
      if (side == 0) bytes[4] = std::byte{9};
    });
  });
  EXPECT_THAT(text, testing::AllOf(HasSubstr("1 here"), HasSubstr("9 there")));
  const Bytes said = talk.server.take_output();
  ASSERT_GE(said.size(), kPrefixSize);
  WireReader reader(said, "prefix");
  EXPECT_EQ(reader.u32(), kHandshakeMagic);
  EXPECT_EQ(reader.u16(), kProtocolVersion);
}

// Every byte of either side's messages matters.
TEST(Handshake, EveryFlippedBitFails) {
  const Secret secret = Secret::random();
  const std::array<std::size_t, 2> sizes{kHelloSize + kMacSize, kHelloSize + 2 * kMacSize};
  for (const int side : {0, 1}) {
    const std::size_t total = sizes[static_cast<std::size_t>(side)];
    for (std::size_t bit = 0; bit < 8 * total; ++bit) {
      Talk talk = talk_between(identity(2, secret), identity(0, secret));
      std::size_t seen = 0;
      const auto flip = [&](int from, Bytes& bytes) {
        if (from != side) return;
        const std::size_t at = bit / 8;
        if (at >= seen && at < seen + bytes.size()) bytes[at - seen] ^= std::byte{1} << (bit % 8);
        seen += bytes.size();
      };
      EXPECT_THROW(talk.run(flip), Error) << "side " << side << " bit " << bit;
      // The client is never done. The server may be done when only its own messages are changed.
      EXPECT_FALSE(talk.client.done());
      EXPECT_FALSE(side == 0 && talk.server.done());
    }
  }
}

TEST(Handshake, TruncatedMessagesNeverComplete) {
  const Secret secret = Secret::random();
  Handshake server = Handshake::server(identity(0, secret), fresh_nonce());
  expect_error(Errc::protocol, [&] { server.consume(Bytes(3)); });
  Handshake client = Handshake::client(identity(2, secret), 0, kLabel, fresh_nonce());
  const Bytes hello = client.take_output();
  Handshake other = Handshake::server(identity(0, secret), fresh_nonce());
  other.consume(std::span(hello).first(kPrefixSize));
  expect_error(Errc::protocol, [&] {
    other.consume(std::span(hello).subspan(kPrefixSize, kHelloSize - kPrefixSize - 1));
  });
  EXPECT_EQ(other.wanted(), 0U);
  expect_error(Errc::internal, [&] { other.consume(hello); });
}

// A peer without the secret sends our own messages back to us.
TEST(Handshake, ReflectedMessagesFail) {
  const Secret secret = Secret::random();
  Handshake client = Handshake::client(identity(2, secret), 2, kLabel, fresh_nonce());
  const Bytes hello = client.take_output();
  const std::string text =
      expect_error(Errc::protocol, [&] { client.consume(std::span(hello).first(kPrefixSize)); });
  EXPECT_THAT(text, HasSubstr("our own role"));

  Handshake server = Handshake::server(identity(0, secret), fresh_nonce());
  Handshake peer = Handshake::client(identity(2, secret), 0, kLabel, fresh_nonce());
  const Bytes first = peer.take_output();
  server.consume(std::span(first).first(kPrefixSize));
  server.consume(std::span(first).subspan(kPrefixSize));
  const Bytes answer = server.take_output();
  const auto proof = std::span(answer).subspan(kHelloSize, kMacSize);
  expect_error(Errc::unauthenticated, [&] { server.consume(proof); });
}

// An attacker without the secret repeats the messages of an earlier, honest session.
TEST(Handshake, ReplayedMessagesFail) {
  const Secret secret = Secret::random();
  Talk honest = talk_between(identity(2, secret), identity(0, secret));
  honest.run();
  Handshake server = Handshake::server(identity(0, secret), fresh_nonce());
  const Bytes& hello = honest.from_client[0];
  server.consume(std::span(hello).first(kPrefixSize));
  server.consume(std::span(hello).subspan(kPrefixSize));
  expect_error(Errc::unauthenticated, [&] { server.consume(honest.from_client[1]); });

  Handshake client = Handshake::client(identity(2, secret), 0, kLabel, fresh_nonce());
  const Bytes& answer = honest.from_server[0];
  client.consume(std::span(answer).first(kPrefixSize));
  client.consume(std::span(answer).subspan(kPrefixSize, kHelloSize - kPrefixSize));
  expect_error(Errc::unauthenticated,
               [&] { client.consume(std::span(answer).subspan(kHelloSize)); });
}

TEST(Handshake, TextsThatDoNotFitAreRefusedAtOnce) {
  const Secret secret = Secret::random();
  for (const std::string& label : {std::string(65, 'l'), std::string("a\nb")}) {
    expect_error(Errc::invalid_argument, [&] {
      static_cast<void>(Handshake::client(identity(2, secret), 0, label, fresh_nonce()));
    });
  }
  const Identity long_job{std::string(129, 'j'), 0, 0, secret};
  expect_error(Errc::invalid_argument,
               [&] { static_cast<void>(Handshake::server(long_job, fresh_nonce())); });
}

TEST(Handshake, HellosAreCanonical) {
  Hello hello;
  hello.job_id = "j";
  hello.label = "l";
  const Bytes whole = encode(hello);
  ASSERT_EQ(whole.size(), kHelloSize);
  EXPECT_EQ(encode(decode_hello(whole)), whole);
  Bytes padded = whole;
  padded.back() = std::byte{'x'};
  EXPECT_THAT(expect_error(Errc::protocol, [&] { static_cast<void>(decode_hello(padded)); }),
              HasSubstr("padding"));
}

}  // namespace
}  // namespace hvd::net
