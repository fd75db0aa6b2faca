// Kills and stops real ranks of a control tree: every survivor must name the same lost rank.
#include <csignal>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/store_server.hpp>

namespace hvd {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

constexpr int kRanks = 8;  // 0 (1 (2 (3) 4) 5 (6 7))
constexpr seconds kPatience{30};

class TreeProcess : public testing::Test {
 protected:
  /// One rank may be given a shorter patience with its neighbours than the others.
  void start(int impatient = -1) {
    for (int rank = 0; rank < kRanks; ++rank) {
      test::ProcessOptions options;
      options.arguments = {HVD_TEST_TREE_RANK};
      options.environment = {{"HVD_RANK", std::to_string(rank)},
                             {"HVD_SIZE", std::to_string(kRanks)},
                             {"HVD_STORE", server_.address()},
                             {"HVD_CONTROL_FANOUT", "2"},
                             // Eight ranks may share two cores.
                             {"HVD_PEER_TIMEOUT_MS", rank == impatient ? "1500" : "3000"}};
      ranks_.push_back(std::make_unique<test::Process>(std::move(options)));
    }
    for (const auto& rank : ranks_) rank->wait_for_out("ready\n", test::in(kPatience));
  }

  /// Kills or stops a rank. Every other one must name it.
  void strike(int victim, int signal) {
    const Clock::time_point struck = Clock::now();
    ranks_[static_cast<std::size_t>(victim)]->signal(signal);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      const test::ProcessResult result =
          ranks_[static_cast<std::size_t>(rank)]->wait(test::in(kPatience));
      EXPECT_THAT(result.out, HasSubstr("lost " + std::to_string(victim) + " code " +
                                        std::to_string(static_cast<int>(Errc::peer_lost))))
          << "rank " << rank << ": " << result.out << result.err;
    }
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - struck);
    RecordProperty("milliseconds_until_all_survivors_were_over", static_cast<int>(took.count()));
  }

  EventLoop loop_;
  StoreServer server_{loop_, "unix:@", {.job_id = "local", .epoch = 0, .rank = -1, .secret = {}}};
  std::vector<std::unique_ptr<test::Process>> ranks_;
};

class TreeProcesses : public TreeProcess,
                      public testing::WithParamInterface<std::tuple<int, int>> {};

std::string name_of(const testing::TestParamInfo<std::tuple<int, int>>& info) {
  return (std::get<1>(info.param) == SIGKILL ? "Killed" : "Stopped") +
         std::to_string(std::get<0>(info.param));
}
// The victims are rank 0, a relay, a relay below it, and a rank below that.
INSTANTIATE_TEST_SUITE_P(Victims, TreeProcesses,
                         testing::Combine(testing::Values(0, 1, 2, 3),
                                          testing::Values(SIGKILL, SIGSTOP)),
                         name_of);

TEST_P(TreeProcesses, TheLostRankIsNamedByAll) {
  const auto [victim, signal] = GetParam();
  start();
  strike(victim, signal);
}

// A rank below a stopped relay may notice that first, and leave before rank 0 has noticed it.
TEST_F(TreeProcess, ARankThatLeavesItsStoppedRelayIsNotBlamed) {
  start(4);
  strike(1, SIGSTOP);
}
TEST_F(TreeProcess, ARankThatLeavesADeeperRelayIsNotBlamed) {
  start(3);
  strike(2, SIGSTOP);
}

}  // namespace
}  // namespace hvd
