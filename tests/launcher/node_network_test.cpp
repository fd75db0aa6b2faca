// Tests node mode over TCP: who may join, on which network, and what happens when the network is
// cut.
#include <filesystem>
#include <fstream>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/network_interfaces.hpp>

#include "base/exit_codes.hpp"
#include "directory.hpp"
#include "nodes.hpp"
#include "two_hosts.hpp"

namespace hvd::launcher {
namespace {

using test::Process;
using test::ProcessOptions;
using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

/// Needs an address that is not loopback.
class OverTcpTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      address_ = reachable_address("").address;
    } catch (const Error&) {
      GTEST_SKIP() << "needs a network interface beside loopback";
    }
    std::ofstream(secret_) << "0123456789abcdef0123456789abcdef";
    std::filesystem::permissions(secret_, std::filesystem::perms(0600));
  }

  [[nodiscard]] ProcessOptions node(int rank, const Words& program) const {
    Words words = {"--nnodes=2", "--node-rank=" + std::to_string(rank),
                   "--rdzv-endpoint=" + address_ + ":" + port_};
    words.insert(words.end(), program.begin(), program.end());
    auto options = hvdrun(std::move(words));
    options.environment["HVD_SECRET_FILE"] = secret_;
    options.environment["HVD_INSECURE"] = std::nullopt;
    return options;
  }

  Directory directory_;
  std::string secret_ = (directory_.path() / "secret").string();
  std::string address_;
  std::string port_ = fresh_port();
};

TEST_F(OverTcpTest, RanksOfTheLibraryMeetWithTheSecretOfTheFile) {
  for (int round = 0; round < 2; ++round) {  // the port is free again at once
    Process second(node(1, {TRAIN}));
    Process first(node(0, {TRAIN}));
    const auto result = wait(first);
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0 of 2"), HasSubstr("rank 1 of 2")));
    EXPECT_EQ(wait(second).exit_code(), 0);
  }
}

TEST_F(OverTcpTest, EveryNodeTalksOverTheNetworkThatLeadsToTheMaster) {
  const Words program = {"sh", "-c", "echo $HVD_NETWORK_INTERFACES $MASTER_ADDR"};
  Process second(node(1, program));
  Process first(node(0, program));
  const auto result = wait(first);
  for (const char* rank : {"0", "1"}) {
    EXPECT_THAT(result.out, HasSubstr(std::string("[") + rank + "]<stdout>:" + address_ + "/32 " +
                                      address_ + "\n"))
        << result.err;
  }
  EXPECT_EQ(wait(second).exit_code(), 0);
}

TEST_F(OverTcpTest, WithoutASecretNobodyStarts) {
  for (const int rank : {0, 1}) {
    auto options = node(rank, {"true"});
    options.environment["HVD_SECRET_FILE"] = std::nullopt;
    const auto result = run(std::move(options));
    EXPECT_EQ(result.exit_code(), kExitUnauthenticated);
    EXPECT_THAT(result.err, HasSubstr("HVD_SECRET_FILE"));
  }
  std::filesystem::permissions(secret_, std::filesystem::perms(0644));
  EXPECT_EQ(run(node(0, {"true"})).exit_code(), kExitUnauthenticated);
}

TEST_F(OverTcpTest, AnotherSecretIsNoted) {
  Process first(node(0, {"true"}));
  auto options = node(1, {"true"});
  const std::string other = (directory_.path() / "other").string();
  std::ofstream(other) << "abcdefghabcdefghabcdefghabcdefgh";
  std::filesystem::permissions(other, std::filesystem::perms(0600));
  options.environment["HVD_SECRET_FILE"] = other;
  const auto result = run(std::move(options));
  EXPECT_EQ(result.exit_code(), kExitUnauthenticated);
  EXPECT_THAT(result.err, HasSubstr("holds another secret"));
}

TEST_F(OverTcpTest, InsecureIsSaidOnEveryNode) {
  const auto insecure = [this](int rank) {
    auto options = node(rank, {TRAIN});
    options.environment["HVD_SECRET_FILE"] = std::nullopt;
    options.environment["HVD_INSECURE"] = "1";
    return options;
  };
  Process second(insecure(1));
  Process first(insecure(0));
  for (Process* process : {&first, &second}) {
    const auto result = wait(*process);
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("HVD_INSECURE=1"));
  }
}

TEST_F(OverTcpTest, APortThatIsTakenAndAnAddressOfAnotherMachineAreNamed) {
  const UniqueFd taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t size = sizeof any;
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&any), size), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  ASSERT_EQ(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&any), &size), 0);
  port_ = std::to_string(ntohs(any.sin_port));
  auto result = run(node(0, {"true"}));
  EXPECT_EQ(result.exit_code(), kExitResource);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("cannot listen at " + address_ + ":" + port_), HasSubstr("in use")));
  address_ = "192.0.2.1";  // an unused address (RFC 5737)
  result = run(node(0, {"true"}));
  EXPECT_EQ(result.exit_code(), kExitResource);
  EXPECT_THAT(result.err, HasSubstr("cannot listen at 192.0.2.1"));
}

/// Two hosts with separate networks.
class TwoNodesTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string lacks = TwoHosts::missing();
    if (!lacks.empty()) GTEST_SKIP() << "needs " << lacks;
    hosts_.emplace();
    std::filesystem::copy_file(TRAIN, hosts_->shared().path() / "work" / "train");
    secret_ = (hosts_->shared().path() / "secret").string();
    std::ofstream(secret_) << "0123456789abcdef0123456789abcdef";
    std::filesystem::permissions(secret_, std::filesystem::perms(0600));
  }

  [[nodiscard]] ProcessOptions node(const std::string& host, const Words& program) const {
    return node(host, host == "a" ? 0 : 1, 2, program);
  }
  /// `rest` has further options and the program.
  [[nodiscard]] ProcessOptions node(const std::string& host, int rank, int nodes,
                                    const Words& rest) const {
    Words words = {HVDRUN,
                   "--nnodes=" + std::to_string(nodes),
                   "--node_rank=" + std::to_string(rank),
                   "--nproc_per_node=2",
                   "--host-timeout=2",
                   "--master_addr=a",
                   "--master_port=29500"};
    words.insert(words.end(), rest.begin(), rest.end());
    auto options = hosts_->on(host, words);
    options.environment["HVD_SECRET_FILE"] = secret_;
    return options;
  }

  std::optional<TwoHosts> hosts_;
  std::string secret_;
};

TEST_F(TwoNodesTest, RanksMeetOverTheCableBetweenThem) {
  Process b(node("b", {"./train"}));
  Process a(node("a", {"./train"}));
  const auto result = wait(a);
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 1 of 4 on a local 1/2 cross 0/2 sum 6 ready"),
                                HasSubstr("rank 2 of 4 on b local 0/2 cross 1/2 sum 6 ready")));
  EXPECT_EQ(wait(b).exit_code(), 0);
  EXPECT_TRUE(hosts_->all_gone(test::in(kPatience))) << hosts_->left();
}

TEST_F(TwoNodesTest, ACutCableEndsBothAndNothingIsLeft) {
  const Words program = {"sh", "-c", "./train loop 2> error.$HVD_RANK"};
  Process b(node("b", program));
  Process a(node("a", program));
  for (const char* rank : {"0", "1", "2", "3"}) {
    a.wait_for_out(std::string("[") + rank + "]<stdout>:rank " + rank, test::in(kPatience));
  }
  hosts_->set_cable(false);
  const auto of_a = wait(a);
  const auto of_b = wait(b);
  EXPECT_EQ(of_a.exit_code(), kExitHostUnreachable) << of_a.err;
  EXPECT_THAT(of_a.err, HasSubstr("hvdrun: b, node 1 was not heard from for 1.4 s"));
  EXPECT_EQ(of_b.exit_code(), kExitHostUnreachable) << of_b.err;
  EXPECT_THAT(of_b.err, HasSubstr("lost node 0 at a:29500"));
  // The ranks of node 1 report the loss before their agent kills them.
  for (const char* rank : {"2", "3"}) {
    std::ifstream file(hosts_->shared().path() / "work" / (std::string("error.") + rank));
    std::string error;
    std::getline(file, error);
    EXPECT_THAT(error, HasSubstr("peer lost: rank 0 on a: silent for")) << rank;
  }
  EXPECT_TRUE(hosts_->all_gone(test::in(kPatience))) << hosts_->left();
}

TEST_F(TwoNodesTest, ACutCableIsNoticedWhileNodesAreMissing) {
  Process b(node("b", 1, 3, {"./train"}));
  const Words rest = {"--verbose", "--start-timeout=1000", "--network-interfaces=lo", "./train"};
  Process a(node("a", 0, 3, rest));
  a.wait_for_err("hvdrun: a node on b has joined", test::in(kPatience));
  hosts_->set_cable(false);
  const auto of_b = wait(b);
  EXPECT_EQ(of_b.exit_code(), kExitHostUnreachable) << of_b.err;
  EXPECT_THAT(of_b.err, HasSubstr("lost node 0 at a:29500"));
  Process last(node("a", 2, 3, rest));
  for (Process* process : {&a, &last}) {
    const auto result = wait(*process);
    EXPECT_EQ(result.exit_code(), kExitHostUnreachable) << result.err;
    EXPECT_THAT(result.err, HasSubstr("hvdrun: b, node 1 was not heard from for 1.4 s"));
  }
  EXPECT_TRUE(hosts_->all_gone(test::in(kPatience))) << hosts_->left();
}

}  // namespace
}  // namespace hvd::launcher
