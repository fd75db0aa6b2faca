// Tests ranks that were not started by hvdrun and meet at rank 0.
#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>
#include <unistd.h>

#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/core/internal/store_server.hpp>
#include <hvd/core/store.hpp>
#include <hvd/hvd.hpp>

namespace hvd {
namespace {

using testing::HasSubstr;

/// A process counts the contexts that it makes of a job, so each test has a job of its own.
std::string job_of_the_test() {
  return fmt::format("{}-{}", testing::UnitTest::GetInstance()->current_test_info()->name(),
                     ::getpid());
}

/// Returns the configuration that a launcher gives to one of `size` ranks, which do not know of a
/// common host.
Config far_rank(int rank, int size, const std::string& address) {
  Config config = test::thread_config(rank, size);
  config.rendezvous = Rendezvous::hosted;
  config.store_address = address;
  config.local_rank = 0;
  config.local_size = 1;
  config.interfaces = "lo";
  config.job_id = job_of_the_test();
  config.rank_source = "TEST_*";
  return config;
}

Config near_rank(int rank, int size) {
  Config config = far_rank(rank, size, "unix:@");
  config.local_rank = rank;
  config.local_size = size;
  return config;
}

int sum_of_ranks(Context& context) {
  float data = static_cast<float>(context.rank());
  allreduce(std::span(&data, 1), {.name = "sum", .op = ReduceOp::sum, .context = &context});
  return static_cast<int>(data);
}

void meet_and_part(const Config& config) {
  const auto context = make_context(config);
  EXPECT_EQ(sum_of_ranks(*context), config.size * (config.size - 1) / 2);
  context->shutdown();
}

/// Passes a secret as launchers do.
struct PassedSecret {
  UniqueFd fd = Secret::random().to_inheritable_fd();
};

TEST(RendezvousTest, OneHostMeetsAgainAndAgain) {
  constexpr int kTimes = 10;
  test::expect_threads(3, [](int rank) {
    for (int time = 0; time < kTimes; ++time) meet_and_part(near_rank(rank, 3));
  });
}

TEST(RendezvousTest, AProcessMayHaveSeveralContextsOfAJob) {
  test::expect_threads(3, [](int rank) {
    const auto first = make_context(near_rank(rank, 3));
    const auto second = make_context(near_rank(rank, 3));
    EXPECT_EQ(sum_of_ranks(*second), 3);
    EXPECT_EQ(sum_of_ranks(*first), 3);
  });
}

TEST(RendezvousTest, APortIsUsedAgainAndAgain) {
  EventLoop loop;
  const PassedSecret secret;
  std::string address;
  {
    const StoreServer free(loop, "tcp:127.0.0.1:0", {"probe", 0, 0, Secret::random()});
    address = free.address();
  }
  test::expect_threads(3, [&](int rank) {
    for (int time = 0; time < 5; ++time) {
      Config config = far_rank(rank, 3, address);
      config.secret_fd = secret.fd.get();
      meet_and_part(config);
    }
  });
}

TEST(RendezvousTest, JobsAndRestartsDoNotMix) {
  test::expect_threads(6, [](int i) {
    Config config = near_rank(i / 3, 2);
    if (i % 3 == 1) config.job_id += "-other";
    if (i % 3 == 2) config.epoch = 1;
    meet_and_part(config);
  });
}

TEST(RendezvousTest, SomeRanksMakeAJobOfTheirOwn) {
  const std::vector<std::vector<int>> jobs{{3, 1}, {0, 4, 5}, {2}};
  test::expect_threads(6, [&](int rank) {
    Config config = near_rank(rank, 6);
    for (const std::vector<int>& job : jobs) {
      if (std::find(job.begin(), job.end(), rank) != job.end()) config.ranks = job;
    }
    const auto context = make_context(config);
    EXPECT_EQ(config.ranks.at(static_cast<std::size_t>(context->rank())), rank);
    EXPECT_EQ(context->topology().local_size, static_cast<int>(config.ranks.size()));
    float data = static_cast<float>(rank);
    allreduce(std::span(&data, 1), {.name = "x", .op = ReduceOp::sum, .context = context.get()});
    EXPECT_EQ(data, std::accumulate(config.ranks.begin(), config.ranks.end(), 0));
    context->shutdown();
  });
}

TEST(RendezvousTest, RanksThatCannotMakeAJobAreNamed) {
  const auto refused = [](Config config, std::vector<int> ranks) {
    config.ranks = std::move(ranks);
    return test::error_of([&] { static_cast<void>(make_context(config)); });
  };
  for (const std::vector<int>& ranks :
       {std::vector{0, 2}, std::vector{1, 1}, std::vector{1, 3}, std::vector{-1, 1}}) {
    const Error error = refused(near_rank(1, 3), ranks);
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("[{}]", fmt::join(ranks, ", "))));
  }
  const Error error = refused(far_rank(1, 3, "tcp:127.0.0.1:1"), {1, 2});
  EXPECT_EQ(error.code(), Errc::unsupported);
  EXPECT_THAT(error.what(), HasSubstr("ranks 1, 2"));
}

/// Listens on two neighbouring ports, as another program. The constructor throws when the second
/// port is taken.
class Strangers {
 public:
  [[nodiscard]] static std::unique_ptr<Strangers> find() {
    constexpr int kAttempts = 20;
    for (int i = 0; i < kAttempts; ++i) {
      try {
        return std::make_unique<Strangers>();
      } catch (const Error&) {
        // Another program has the second port.
      }
    }
    return nullptr;
  }
  Strangers()
      : first_(loop_, "tcp:127.0.0.1:0", {"stranger", 0, 0, Secret::random()}),
        port_(Address::parse(first_.address()).port),
        second_(loop_, fmt::format("tcp:127.0.0.1:{}", port_ + 1),
                {"stranger", 0, 0, Secret::random()}) {}

  [[nodiscard]] const std::string& first() const { return first_.address(); }

 private:
  EventLoop loop_;
  StoreServer first_;
  int port_;
  StoreServer second_;
};

TEST(RendezvousTest, StrangersOnThePortsArePassedBy) {
  const auto strangers = Strangers::find();
  ASSERT_NE(strangers, nullptr);
  const PassedSecret secret;
  test::expect_threads(3, [&](int rank) {
    Config config = far_rank(rank, 3, strangers->first());
    config.store_ports = 8;
    config.secret_fd = secret.fd.get();
    meet_and_part(config);
  });
}

TEST(RendezvousTest, ATakenPortThatWasAskedForIsNamed) {
  EventLoop loop;
  const StoreServer stranger(loop, "tcp:127.0.0.1:0", {"stranger", 0, 0, Secret::random()});
  const PassedSecret secret;
  Config config = far_rank(0, 2, stranger.address());
  config.secret_fd = secret.fd.get();
  const Error error = test::error_of([&] { (void)make_context(config); });
  EXPECT_EQ(error.code(), Errc::resource);
  EXPECT_THAT(error.what(), HasSubstr(stranger.address()));
}

TEST(RendezvousTest, SeveralHostsNeedASecret) {
  for (int rank : {0, 1}) {
    const Error error =
        test::error_of([&] { (void)make_context(far_rank(rank, 2, "tcp:127.0.0.1:29500")); });
    EXPECT_EQ(error.code(), Errc::unauthenticated);
    EXPECT_THAT(error.what(), HasSubstr("HVD_SECRET_FILE"));
    EXPECT_THAT(error.what(), HasSubstr("TEST_*"));
  }
}

TEST(MeetingTest, WhereTheHostsAreUnknownTheMastersNameDecides) {
  // Rank 0's host is this one, so no secret is needed. Rank 1 of the other job is on another host.
  test::expect_threads(2, [](int rank) {
    Config config = far_rank(rank, 2, "tcp:localhost:29500");
    config.local_rank = config.local_size = -1;
    meet_and_part(config);
  });
  Config config = far_rank(1, 2, "tcp:192.0.2.1:29500");  // an unused address (RFC 5737)
  config.local_rank = config.local_size = -1;
  EXPECT_EQ(test::error_of([&] { (void)make_context(config); }).code(), Errc::unauthenticated);
}

TEST(RendezvousTest, ManyRanksWithoutAPlaceToMeetAreAnError) {
  Config config = far_rank(1, 2, "");
  config.rendezvous = Rendezvous::none;
  const Error error = test::error_of([&] { (void)make_context(config); });
  EXPECT_THAT(error.what(), HasSubstr("HVD_RENDEZVOUS"));
}

// Tests with a store of ours in place of torchrun's.

std::shared_ptr<Store>& board() {
  static std::shared_ptr<Store> store = make_hash_store();
  return store;
}

/// Provides a client of torchrun's store for the time of a test.
struct AgentForATest {
  AgentForATest() {
    provide_agent_store([](const std::string&, Deadline) { return board(); });
  }
  ~AgentForATest() { provide_agent_store(before); }
  ConnectAgentStore before = agent_store();
};

TEST(AgentRendezvousTest, RanksMeetOverTheAgentsStore) {
  const AgentForATest agent;
  test::expect_threads(3, [](int rank) {
    for (int time = 0; time < 3; ++time) {
      Config config = far_rank(rank, 3, "tcp:node-a:29500");
      config.rendezvous = Rendezvous::agent;
      meet_and_part(config);
    }
  });
}

TEST(AgentRendezvousTest, ASecretOfOnesOwnStaysOutOfTheAgentsStore) {
  const AgentForATest agent;
  const PassedSecret secret;
  test::expect_threads(2, [&](int rank) {
    Config config = far_rank(rank, 2, "tcp:node-a:29500");
    config.rendezvous = Rendezvous::agent;
    config.secret_fd = secret.fd.get();
    config.job_id += "-own";
    meet_and_part(config);
  });
  const auto left = board()->get(fmt::format("0/hvd/{}-own/0/store", job_of_the_test()),
                                 Clock::now() + std::chrono::seconds(1));
  ASSERT_TRUE(left.has_value());
  const Secret passed = Secret::from_fd(secret.fd.get());
  EXPECT_EQ(std::search(left->begin(), left->end(), passed.bytes().begin(), passed.bytes().end()),
            left->end());
  const Bytes nothing(Secret::kSize);
  EXPECT_TRUE(std::equal(nothing.rbegin(), nothing.rend(), left->rbegin()));
}

TEST(AgentRendezvousTest, WithoutAClientTheErrorSaysWhatToDo) {
  Config config = far_rank(1, 2, "tcp:node-a:29500");
  config.rendezvous = Rendezvous::agent;
  ASSERT_EQ(agent_store(), nullptr);
  const Error error = test::error_of([&] { (void)make_context(config); });
  EXPECT_EQ(error.code(), Errc::unsupported);
  EXPECT_THAT(error.what(), HasSubstr("include <hvd/torch.hpp>"));
}

}  // namespace
}  // namespace hvd
