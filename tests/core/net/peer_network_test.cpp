#include <cstddef>
#include <cstring>
#include <future>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/host_identity.hpp>
#include <hvd/core/internal/peer_network.hpp>

#include "expect_error.hpp"
#include "net/peer_table.hpp"
#include "net/socket.hpp"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using test::bytes_of;
using test::expect_error;
using test::expect_threads;
using test::in;
using test::soon;
using testing::HasSubstr;

const net::Interrupt& never() {
  static const net::Interrupt interrupt;
  return interrupt;
}

int family(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return address.ss_family;
}

void send_text(int fd, const std::string& text) {
  ASSERT_TRUE(net::write_all(fd, bytes_of(text), soon(), never()));
}

std::string receive_text(int fd, std::size_t size) {
  Bytes bytes(size);
  EXPECT_TRUE(net::read_exact(fd, bytes, soon(), never()));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// One rank of a job whose ranks are threads and share a hash store.
struct Rank {
  Rank(Store& store, int rank, int size, Deadline deadline = soon(), const Secret& secret = {},
       std::string job = "0")
      : network(loop, Bootstrap(store, rank, size, deadline, std::move(job)),
                {"job", 0, rank, secret}, "") {}

  EventLoop loop;
  PeerNetwork network;
};

class PeerNetworkSuite : public testing::TestWithParam<int> {};

TEST_P(PeerNetworkSuite, EveryPairMeetsOnEveryLabel) {
  const int size = GetParam();
  const auto store = make_hash_store();
  expect_threads(size, [&](int rank) {
    Rank self(*store, rank, size);
    ASSERT_EQ(self.network.hosts().size(), static_cast<std::size_t>(size));
    for (const std::string label : {"a", "b/1", "tcp/a"}) {
      std::vector<UniqueFd> streams(static_cast<std::size_t>(size));
      for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        UniqueFd fd = self.network.open(peer, label, soon());
        EXPECT_EQ(family(fd.get()), label.starts_with("tcp/") ? AF_INET : AF_UNIX);
        EXPECT_NE(::fcntl(fd.get(), F_GETFL) & O_NONBLOCK, 0);
        EXPECT_NE(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
        send_text(fd.get(), label + std::to_string(rank));
        streams[static_cast<std::size_t>(peer)] = std::move(fd);
      }
      for (int peer = 0; peer < size; ++peer) {
        if (peer == rank) continue;
        const std::string expected = label + std::to_string(peer);
        EXPECT_EQ(receive_text(streams[static_cast<std::size_t>(peer)].get(), expected.size()),
                  expected);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, PeerNetworkSuite,
                         testing::ValuesIn(test::rank_counts({1, 2, 3, 5, 8})),
                         [](const auto& one) { return "np" + std::to_string(one.param); });

TEST(PeerNetwork, OrderOfOpeningDoesNotMatter) {
  const auto store = make_hash_store();
  expect_threads(2, [&](int rank) {
    Rank self(*store, rank, 2);
    const auto open = [&](const std::string& label) {
      return std::async(std::launch::async,
                        [&, label] { return self.network.open(1 - rank, label, soon()); });
    };
    auto first = open(rank == 0 ? "x" : "y");
    auto second = open(rank == 0 ? "y" : "x");
    const UniqueFd x = rank == 0 ? first.get() : second.get();
    const UniqueFd y = rank == 0 ? second.get() : first.get();
    send_text(x.get(), "x");
    send_text(y.get(), "y");
    EXPECT_EQ(receive_text(x.get(), 1), "x");
    EXPECT_EQ(receive_text(y.get(), 1), "y");
  });
}

TEST(PeerNetwork, TcpStreamsHaveNoDelay) {
  const auto store = make_hash_store();
  expect_threads(2, [&](int rank) {
    Rank self(*store, rank, 2);
    const UniqueFd fd = self.network.open(1 - rank, "tcp/x", soon());
    int no_delay = 0;
    socklen_t size = sizeof(no_delay);
    ASSERT_EQ(::getsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &size), 0);
    EXPECT_NE(no_delay, 0);
    send_text(fd.get(), ".");  // the other end lives until both have looked
    EXPECT_EQ(receive_text(fd.get(), 1), ".");
  });
}

TEST(PeerNetwork, DescriptorsTravelOverUnixStreams) {
  const auto store = make_hash_store();
  expect_threads(2, [&](int rank) {
    Rank self(*store, rank, 2);
    const UniqueFd stream = self.network.open(1 - rank, "arena", soon());
    char byte = 'x';
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (rank == 0) {
      const UniqueFd memory(::memfd_create("arena", MFD_CLOEXEC));
      ASSERT_EQ(::pwrite(memory.get(), "shared", 6, 0), 6);
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      const int fd = memory.get();
      std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
      ASSERT_EQ(::sendmsg(stream.get(), &message, MSG_NOSIGNAL), 1);
    } else {
      ASSERT_TRUE(net::wait_ready(stream.get(), net::Ready::read, soon(), never()));
      ASSERT_EQ(::recvmsg(stream.get(), &message, MSG_CMSG_CLOEXEC), 1);
      const cmsghdr* const header = CMSG_FIRSTHDR(&message);
      ASSERT_NE(header, nullptr);
      ASSERT_EQ(header->cmsg_type, SCM_RIGHTS);
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
      const UniqueFd memory(fd);
      char text[7] = {};
      ASSERT_EQ(::pread(memory.get(), text, 6, 0), 6);
      EXPECT_STREQ(text, "shared");
    }
  });
}

TEST(PeerNetwork, MissingRanksAreNamedTogether) {
  const auto store = make_hash_store();
  const auto errors = test::run_threads(5, [&](int rank) {
    if (rank == 1 || rank == 3) return;
    const std::string text = expect_error(Errc::timeout, [&] { Rank(*store, rank, 5, in(300ms)); });
    EXPECT_THAT(text, HasSubstr("ranks 1, 3 did not come"));
  });
  for (const auto& error : errors) EXPECT_EQ(error, nullptr);
}

TEST(PeerNetwork, APeerThatDoesNotOpenIsNamed) {
  const auto store = make_hash_store();
  std::promise<void> done;
  std::shared_future<void> over = done.get_future().share();
  expect_threads(2, [&](int rank) {
    Rank self(*store, rank, 2);
    if (rank == 1) {
      EXPECT_EQ(over.wait_for(30s), std::future_status::ready);
      return;
    }
    const std::string text = expect_error(
        Errc::timeout, [&] { static_cast<void>(self.network.open(1, "lonely", in(50ms))); });
    EXPECT_THAT(text, testing::AllOf(HasSubstr("rank 1"), HasSubstr("lonely"),
                                     HasSubstr(self.network.hosts()[1].hostname)));
    done.set_value();
  });
}

TEST(PeerNetwork, APeerThatHasGoneIsLost) {
  const auto store = make_hash_store();
  std::promise<void> gone;
  expect_threads(2, [&](int rank) {
    auto self = std::make_unique<Rank>(*store, rank, 2);
    if (rank == 0) {
      self.reset();
      gone.set_value();
      return;
    }
    ASSERT_EQ(gone.get_future().wait_for(30s), std::future_status::ready);
    for (const std::string label : {"x", "tcp/x"}) {
      const std::string text = expect_error(
          Errc::peer_lost, [&] { static_cast<void>(self->network.open(0, label, soon())); });
      EXPECT_THAT(text, testing::AllOf(HasSubstr("rank 0"), HasSubstr("refused")));
    }
  });
}

TEST(PeerNetwork, AbortWakesBothSides) {
  const auto store = make_hash_store();
  // Rank 1 accepts no connections, like a rank whose process is stopped.
  const net::Listener frozen({Address::Kind::unix_socket, "@", 0});
  std::thread stopped([&] {
    const net::PeerRecord own{HostIdentity::of_this_process(), frozen.address().to_string(), ""};
    const Bytes record = net::encode(own);
    const std::string_view text(reinterpret_cast<const char*>(record.data()), record.size());
    Bootstrap(*store, 1, 3, soon()).decide("peers", text, nullptr);
  });
  expect_threads(2, [&](int thread) {
    const int rank = thread == 0 ? 0 : 2;
    Rank self(*store, rank, 3);
    auto opening = std::async(std::launch::async, [&] {
      expect_error(Errc::aborted, [&] { static_cast<void>(self.network.open(1, "x", in(60s))); });
    });
    EXPECT_EQ(opening.wait_for(50ms), std::future_status::timeout);
    self.network.abort();
    EXPECT_EQ(opening.wait_for(20s), std::future_status::ready);
    expect_error(Errc::aborted, [&] { static_cast<void>(self.network.open(1, "y", soon())); });
  });
  stopped.join();
}

TEST(PeerNetwork, StrayConnectionsDoNotDisturb) {
  const auto store = make_hash_store();
  expect_threads(2, [&](int rank) {
    Rank self(*store, rank, 2);
    const net::PeerRecord there = net::decode_peer_record(store->wait("0/peers/0", soon()));
    std::vector<UniqueFd> strays;
    for (const std::string& address : {there.unix_address, there.tcp_address}) {
      for (int i = 0; i < 40; ++i) {
        strays.push_back(net::connect_to(Address::parse(address), soon(), never()));
        if (i % 2 == 0) send_text(strays.back().get(), std::string(300, 'g'));
      }
    }
    for (const std::string label : {"x", "tcp/x"}) {
      const UniqueFd fd = self.network.open(1 - rank, label, soon());
      send_text(fd.get(), "hello");
      EXPECT_EQ(receive_text(fd.get(), 5), "hello");
    }
  });
}

// When a peer connects again, as after a restart, its new stream counts.
TEST(PeerNetwork, ALaterStreamReplacesThePendingOne) {
  const auto store = make_hash_store();
  std::promise<void> second;
  expect_threads(2, [&](int rank) {
    Rank self(*store, rank, 2);
    if (rank == 1) {
      const UniqueFd old = self.network.open(0, "x", soon());
      const UniqueFd fd = self.network.open(0, "x", soon());
      EXPECT_THROW(receive_text(old.get(), 1), net::StreamLost);
      second.set_value();
      send_text(fd.get(), "new");
      EXPECT_EQ(receive_text(fd.get(), 2), "ok");
    } else {
      ASSERT_EQ(second.get_future().wait_for(30s), std::future_status::ready);
      const UniqueFd fd = self.network.open(1, "x", soon());
      EXPECT_EQ(receive_text(fd.get(), 3), "new");
      send_text(fd.get(), "ok");
    }
  });
}

/// No descriptor can be opened during its life.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit none = before_;
    none.rlim_cur = 0;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

// A rank that has no descriptor for the connection that it waits for must not wait for long.
TEST(PeerNetwork, ARankWithoutDescriptorsSaysSo) {
  // A sanitizer needs pipes itself.
  if (test::kSanitized) GTEST_SKIP() << "needs a process without a sanitizer";
  const auto store = make_hash_store();
  expect_threads(2, [&](int rank) {
    Rank self(*store, rank, 2);
    if (rank == 1) {
      store->set("listens", {}, soon());
      static_cast<void>(store->wait("over", soon()));
      return;
    }
    static_cast<void>(store->wait("listens", soon()));
    const auto record = net::decode_peer_record(store->wait("0/peers/0", soon()));
    const Address address = Address::parse(record.unix_address);
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    address.host.copy(where.sun_path, address.host.size());
    where.sun_path[0] = '\0';  // an abstract name
    const UniqueFd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    {
      const NoDescriptors none;
      const auto length =
          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.host.size());
      ASSERT_EQ(::connect(stream.get(), reinterpret_cast<const sockaddr*>(&where), length), 0);
      const Error error =
          test::error_of([&] { static_cast<void>(self.network.open(1, "x", soon())); });
      EXPECT_EQ(error.code(), Errc::resource);
      EXPECT_THAT(error.what(), HasSubstr("rank 0 cannot accept connections: Too many open files"));
    }
    store->set("over", {}, soon());
  });
}

TEST(PeerNetwork, MeetsAgainInTheSameStore) {
  const auto store = make_hash_store();
  expect_threads(3, [&](int rank) {
    for (std::uint32_t round = 0; round < 5; ++round) {
      Rank self(*store, rank, 3, soon(), {}, std::to_string(round));
      const std::string label = "r" + std::to_string(round);
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == rank) continue;
        const UniqueFd fd = self.network.open(peer, label, soon());
        send_text(fd.get(), label);
        EXPECT_EQ(receive_text(fd.get(), label.size()), label);
      }
    }
  });
}

TEST(PeerNetwork, RanksWithAnotherSecretAreRefused) {
  const auto store = make_hash_store();
  const Secret good = Secret::random();
  std::promise<void> refused;
  expect_threads(2, [&](int rank) {
    Rank self(*store, rank, 2, soon(), rank == 0 ? good : Secret::random());
    if (rank == 1) {
      expect_error(Errc::unauthenticated,
                   [&] { static_cast<void>(self.network.open(0, "x", soon())); });
      refused.set_value();
    } else {
      EXPECT_EQ(refused.get_future().wait_for(30s), std::future_status::ready);
    }
  });
}

TEST(PeerNetwork, ArgumentsAreChecked) {
  const auto alone = make_hash_store();
  Rank self(*alone, 0, 1);
  for (const int peer : {-1, 0, 1}) {
    expect_error(Errc::invalid_argument,
                 [&] { static_cast<void>(self.network.open(peer, "x", soon())); });
  }
  expect_error(Errc::invalid_argument, [&] { Rank(*alone, 3, 3); });
  const auto store = make_hash_store();
  expect_threads(2, [&](int rank) {
    Rank pair(*store, rank, 2);
    for (const std::string& label : {std::string(), std::string(65, 'l'), std::string("\n")}) {
      expect_error(Errc::invalid_argument,
                   [&] { static_cast<void>(pair.network.open(1 - rank, label, soon())); });
    }
  });
}

TEST(HostIdentityTest, IsTheSameTwice) {
  const HostIdentity a = HostIdentity::of_this_process();
  EXPECT_TRUE(a.same_host(HostIdentity::of_this_process()));
  EXPECT_FALSE(a.hostname.empty());
  HostIdentity other = a;
  other.network_namespace ^= 1;
  EXPECT_FALSE(a.same_host(other));
}

}  // namespace
}  // namespace hvd
