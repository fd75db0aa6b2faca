// Tests a store with a server, which may be lost, attacked, or another job's or user's.
#include <cstddef>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <thread>

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/store_server.hpp>

#include "expect_error.hpp"
#include "net/dial.hpp"
#include "net/frame.hpp"
#include "net/handshake.hpp"
#include "net/socket.hpp"
#include "store/store_protocol.hpp"

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using namespace std::chrono_literals;
using test::bytes_of;
using test::expect_error;
using test::in;
using test::soon;
using testing::HasSubstr;

class StoreServerTest : public testing::TestWithParam<std::string> {
 protected:
  Identity identity(int rank) const { return {"job", 0, rank, secret_}; }

  const Secret secret_ = Secret::random();
  net::Interrupt never_;
  EventLoop loop_;
  std::unique_ptr<StoreServer> server_ =
      std::make_unique<StoreServer>(loop_, GetParam(), identity(-1));
};

TEST_P(StoreServerTest, ServerGoneIsPeerLost) {
  const auto store = connect_store(server_->address(), identity(0), soon());
  server_.reset();
  expect_error(Errc::peer_lost, [&] { static_cast<void>(store->get("k", soon())); });
  expect_error(Errc::peer_lost, [&] { store->set("k", {}, soon()); });
}

TEST_P(StoreServerTest, ServerGoneEndsAWait) {
  const auto store = connect_store(server_->address(), identity(0), soon());
  auto waiting = std::async(std::launch::async, [&] {
    expect_error(Errc::peer_lost, [&] { static_cast<void>(store->wait("k", in(60s))); });
  });
  connect_store(server_->address(), identity(1), soon())->set("other", {}, soon());
  server_.reset();
  EXPECT_EQ(waiting.wait_for(20s), std::future_status::ready);
}

TEST_P(StoreServerTest, NobodyListensIsATimeoutThatSaysWhere) {
  const std::string address = server_->address();
  server_.reset();
  const std::string text = expect_error(
      Errc::timeout, [&] { static_cast<void>(connect_store(address, identity(0), in(50ms))); });
  EXPECT_THAT(text, HasSubstr(address));
  EXPECT_THAT(text, HasSubstr("refused"));
}

TEST_P(StoreServerTest, ConnectWaitsForTheServer) {
  const std::string address = server_->address();
  server_.reset();
  auto client = std::async(std::launch::async, [&] {
    connect_store(address, identity(0), soon())->set("k", bytes_of("v"), soon());
  });
  // Either side may be first, and the client must succeed in both cases.
  StoreServer late(loop_, address, identity(-1));
  client.get();
  EXPECT_EQ(connect_store(address, identity(1), soon())->get("k", soon()), bytes_of("v"));
}

TEST_P(StoreServerTest, WrongSecretJobOrEpochIsRefusedAtOnce) {
  expect_error(Errc::unauthenticated, [&] {
    static_cast<void>(connect_store(server_->address(), {"job", 0, 0, Secret::random()}, soon()));
  });
  const std::string job = expect_error(Errc::protocol, [&] {
    static_cast<void>(connect_store(server_->address(), {"other", 0, 0, secret_}, soon()));
  });
  EXPECT_THAT(job, testing::AllOf(HasSubstr("other here"), HasSubstr("job there")));
  const std::string epoch = expect_error(Errc::protocol, [&] {
    static_cast<void>(connect_store(server_->address(), {"job", 1, 0, secret_}, soon()));
  });
  EXPECT_THAT(epoch, testing::AllOf(HasSubstr("1 here"), HasSubstr("0 there")));
  EXPECT_EQ(connect_store(server_->address(), identity(0), soon())->get("k", soon()), std::nullopt);
}

TEST_P(StoreServerTest, StrayConnectionsDoNotDisturb) {
  const Address address = Address::parse(server_->address());
  std::vector<UniqueFd> strays;
  for (int i = 0; i < 100; ++i) {  // more than may be in the handshake at a time
    strays.push_back(net::connect_to(address, soon(), never_));
    if (i % 2 == 0) {
      const std::string garbage = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
      static_cast<void>(net::write_all(strays.back().get(), bytes_of(garbage), soon(), never_));
    }
  }
  const auto store = connect_store(server_->address(), identity(0), soon());
  store->set("k", bytes_of("v"), soon());
  EXPECT_EQ(store->get("k", soon()), bytes_of("v"));
  for (const UniqueFd& stray : strays) {  // all are dropped, the silent ones after a second
    std::byte byte{};
    EXPECT_THROW(static_cast<void>(net::read_exact(stray.get(), {&byte, 1}, soon(), never_)),
                 net::StreamLost);
  }
}

std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST_P(StoreServerTest, AtMost64ConnectionsAreInTheHandshake) {
  const Address address = Address::parse(server_->address());
  const std::ptrdiff_t before = open_descriptors();
  constexpr int kStrays = 100;
  std::vector<UniqueFd> strays;
  for (int i = 0; i < kStrays; ++i) strays.push_back(net::connect_to(address, soon(), never_));
  for (int look = 0; look < 50; ++look) {
    loop_.run_sync([&] { EXPECT_LE(open_descriptors() - before, kStrays + 64); });
  }
}

TEST_P(StoreServerTest, MalformedRequestsEndThatClientOnly) {
  const auto store = connect_store(server_->address(), identity(0), soon());
  const auto send = [&](const Bytes& bytes) {
    net::DialOptions options;
    options.address = Address::parse(server_->address());
    options.label = kStoreLabel;
    options.deadline = soon();
    const UniqueFd fd = net::dial(options, identity(1), never_);
    std::byte byte{};
    EXPECT_THROW(
        {
          static_cast<void>(net::write_all(fd.get(), bytes, soon(), never_));
          static_cast<void>(net::read_exact(fd.get(), {&byte, 1}, soon(), never_));
        },
        net::StreamLost);
  };
  send(bytes_of("this is no frame at all"));
  send(net::encode_frame(net::FrameType::control, bytes_of("x")));
  send(net::encode_frame(net::FrameType::store_request, bytes_of("nonsense")));
  send(net::encode_frame(net::FrameType::store_request, Bytes(kMaxStoreMessage + 1)));
  store->set("k", bytes_of("v"), soon());
  EXPECT_EQ(store->get("k", soon()), bytes_of("v"));
}

TEST_P(StoreServerTest, WaitAllForMoreThanAReplyCarriesIsAnError) {
  const auto store = connect_store(server_->address(), identity(0), soon());
  constexpr int kValues = 17;  // of 1 MiB each; a reply carries 16 MiB
  for (int i = 0; i < kValues; ++i) {
    store->set("big/" + std::to_string(i), Bytes(std::size_t{1} << 20), soon());
  }
  expect_error(Errc::resource,
               [&] { static_cast<void>(store->wait_all("big/", kValues, soon())); });
  EXPECT_EQ(store->wait_all("big/", 2, soon()).size(), 2U);
}

TEST_P(StoreServerTest, AClientThatReadsNothingIsDropped) {
  const auto store = connect_store(server_->address(), identity(0), soon());
  store->set("big", Bytes(std::size_t{1} << 20), soon());
  net::DialOptions options;
  options.address = Address::parse(server_->address());
  options.label = kStoreLabel;
  options.deadline = soon();
  const UniqueFd fd = net::dial(options, identity(1), never_);
  const Bytes frame = net::encode_frame(
      net::FrameType::store_request, encode(StoreRequest{1, StoreVerb::get, "job/0/big", {}, 0}));
  const Deadline deadline = soon();
  EXPECT_THROW(
      {
        while (Clock::now() < deadline) {
          static_cast<void>(net::write_all(fd.get(), frame, deadline, never_));
        }
      },
      net::StreamLost);
  EXPECT_EQ(store->get("k", soon()), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Sockets, StoreServerTest, testing::Values("unix:@", "tcp:127.0.0.1:0"),
                         [](const auto& one) { return one.index == 0 ? "unix" : "tcp"; });

TEST(StoreSecurity, TcpNeedsASecret) {
  EventLoop loop;
  expect_error(Errc::unauthenticated, [&] {
    StoreServer(loop, "tcp:127.0.0.1:0", {"job", 0, -1, {}});
  });
  expect_error(Errc::unauthenticated, [&] {
    static_cast<void>(connect_store("tcp:127.0.0.1:1", {"job", 0, 0, {}}, soon()));
  });
  StoreServer server(loop, "unix:@", {"job", 0, -1, {}});
  EXPECT_EQ(connect_store(server.address(), {"job", 0, 0, {}}, soon())->get("k", soon()),
            std::nullopt);
}

/// Runs `body` on a thread that acts as another user, which only root can do.
void as_another_user(const std::function<void()>& body) {
  std::thread([&] {
    constexpr uid_t kKeep = static_cast<uid_t>(-1);
    constexpr uid_t kNobody = 65534;
    // The system call, unlike the C library's function, changes the calling thread alone.
    ASSERT_EQ(::syscall(SYS_setresuid, kKeep, kNobody, kKeep), 0);
    body();
  }).join();
}

TEST(StoreSecurity, AnotherUserIsRefusedByBothSidesOfAUnixSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to act as another user";
  EventLoop loop;
  const Identity nobody_knows_more{"job", 0, 0, {}};
  StoreServer server(loop, "unix:@", {"job", 0, -1, {}});
  as_another_user([&] {
    expect_error(Errc::unauthenticated, [&] {
      static_cast<void>(connect_store(server.address(), nobody_knows_more, soon()));
    });
  });

  // The rest tests the server's check, with a client that does not check the server's user, and
  // that knows all that the handshake asks for.
  const std::string name = Address::parse(server.address()).host;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size() - 1, 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  const auto greet = [&](int fd) {
    const net::Interrupt never;
    net::Handshake handshake = net::Handshake::client(nobody_knows_more, -1, kStoreLabel, {});
    while (!handshake.done()) {
      Bytes piece = handshake.take_output();
      ASSERT_TRUE(net::write_all(fd, piece, soon(), never));
      piece.resize(handshake.wanted());
      ASSERT_TRUE(net::read_exact(fd, piece, soon(), never));
      handshake.consume(piece);
    }
  };
  const UniqueFd ours(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(ours.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  greet(ours.get());
  const UniqueFd theirs(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  as_another_user(
      [&] { ASSERT_EQ(::connect(theirs.get(), reinterpret_cast<sockaddr*>(&address), size), 0); });
  EXPECT_THROW(greet(theirs.get()), net::StreamLost);
}

TEST(StoreSecurity, ASocketFileIsRemovedWithItsServer) {
  EventLoop loop;
  const std::string path = testing::TempDir() + "/hvd-" + std::to_string(::getpid()) + ".sock";
  {
    StoreServer server(loop, "unix:" + path, {"job", 0, -1, {}});
    EXPECT_EQ(::access(path.c_str(), F_OK), 0);
    EXPECT_EQ(connect_store(server.address(), {"job", 0, 0, {}}, soon())->get("k", soon()),
              std::nullopt);
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace hvd
