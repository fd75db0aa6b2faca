#include "plan/plan.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_codes.hpp"
#include "cli/dry_run.hpp"
#include "plan/rank_environment.hpp"

namespace hvd::launcher {
namespace {

using testing::Contains;
using testing::HasSubstr;

TEST(PlanTest, FillsOneHost) {
  const Plan plan = plan_ranks({{"localhost", 3}}, 3);
  ASSERT_EQ(plan.ranks.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(plan.ranks[static_cast<std::size_t>(rank)], (Placement{.rank = rank,
                                                                     .host = 0,
                                                                     .local_rank = rank,
                                                                     .local_size = 3,
                                                                     .cross_rank = 0,
                                                                     .cross_size = 1}));
  }
}

TEST(PlanTest, GoesHostByHost) {
  const Plan plan = plan_ranks({{"a", 2}, {"b", 3}, {"c", 1}}, 6);
  ASSERT_EQ(plan.ranks.size(), 6U);
  EXPECT_EQ(plan.ranks[1], (Placement{1, 0, 1, 2, 0, 2}));
  EXPECT_EQ(plan.ranks[2], (Placement{2, 1, 0, 3, 1, 3}));
  EXPECT_EQ(plan.ranks[3], (Placement{3, 1, 1, 3, 1, 2}));
  EXPECT_EQ(plan.ranks[4], (Placement{4, 1, 2, 3, 0, 1}));
  EXPECT_EQ(plan.ranks[5], (Placement{5, 2, 0, 1, 2, 3}));
}

TEST(PlanTest, ExactlyTheRanksAskedFor) {
  const Plan plan = plan_ranks({{"a", 4}, {"b", 4}, {"c", 4}}, 5);
  EXPECT_EQ(plan.ranks.size(), 5U);
  EXPECT_EQ(plan.hosts.size(), 2U);  // host c gets no rank
  EXPECT_EQ(plan.ranks[4], (Placement{4, 1, 0, 1, 1, 2}));
}

TEST(PlanTest, RanksOfAMachineAreNeighboursWhereverTheirHostsAre) {
  const std::vector<HostSpec> hosts(5, HostSpec{.name = "task", .slots = 1});
  const Plan plan = plan_ranks(hosts, {"a", "b", "a", "a", "b"});
  ASSERT_EQ(plan.ranks.size(), 5U);
  const auto all = [&](std::string_view name) {
    std::string values;
    for (const Placement& at : plan.ranks) values += value_of(rank_variables(at, plan), name);
    return values;
  };
  EXPECT_EQ(all("HVD_RANK"), "01234");
  EXPECT_EQ(all("HVD_LOCAL_RANK"), "00121");
  EXPECT_EQ(all("HVD_LOCAL_SIZE"), "32332");
  EXPECT_EQ(all("HVD_CROSS_RANK"), "01001");
  EXPECT_EQ(all("HVD_CROSS_SIZE"), "22212");
  EXPECT_EQ(all("GROUP_RANK"), "01001");
  EXPECT_EQ(all("WORLD_SIZE"), "55555");
}

TEST(PlanTest, TooFewSlotsGivesBothNumbers) {
  try {
    (void)plan_ranks({{"a", 2}, {"b", 1}}, 4);
    FAIL() << "accepted";
  } catch (const LaunchError& error) {
    EXPECT_EQ(error.code(), kExitUsage);
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("4"), HasSubstr("3")));
  }
}

TEST(RankEnvironmentTest, EveryVariableOfTheContract) {
  const Plan plan = plan_ranks({{"a", 2}, {"b", 2}}, 4);
  const JobIdentity job{"job", 1, "unix:@s", "10.0.0.1", 4000};
  const Variables variables = merge(rank_variables(plan.ranks[3], plan), job_variables(job));
  for (const char* expected :
       {"HVD_RANK=3", "HVD_SIZE=4", "HVD_LOCAL_RANK=1", "HVD_LOCAL_SIZE=2", "HVD_CROSS_RANK=1",
        "HVD_CROSS_SIZE=2", "HVD_JOB_ID=job", "HVD_RESTART_COUNT=1", "HVD_STORE=unix:@s", "RANK=3",
        "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1",
        "MASTER_ADDR=10.0.0.1", "MASTER_PORT=4000"}) {
    EXPECT_THAT(variables, Contains(expected));
  }
}

TEST(RankEnvironmentTest, LaterWins) {
  EXPECT_THAT(merge({"A=1", "B=2"}, {"B=3", "C="}), testing::ElementsAre("A=1", "B=3", "C="));
  EXPECT_EQ(value_of({"AB=1", "A=2"}, "A"), "2");
  EXPECT_EQ(value_of({"A="}, "A"), "");
  EXPECT_TRUE(contains({"A="}, "A"));
  EXPECT_FALSE(contains({"AB=1"}, "A"));
}

TEST(RankEnvironmentTest, AnOuterJobsSecretAndWorkerAreNotPassedOn) {
  EXPECT_THAT(inherited_variables({"PATH=/bin", "HVD_SECRET_FD=3", "HVD_SECRET_FILE=/s",
                                   "HVD_ELASTIC_FD=4", "HVD_WORKER=5"}),
              testing::ElementsAre("PATH=/bin"));
  EXPECT_THAT(forwarded_variables({"PATH=/bin", "HVD_ELASTIC_FD=4", "HVD_WORKER=5"}, {}).variables,
              testing::ElementsAre("PATH=/bin"));
}

TEST(RankEnvironmentTest, SecretsAndWhatMeansOneMachineAreNotForwarded) {
  const auto result = forwarded_variables(
      {"PATH=/bin", "AWS_SECRET_ACCESS_KEY=1", "hf_token=2", "LD_PRELOAD=x.so", "MY_KEY=3",
       "DB_PASSWORD=4", "CUDA_VISIBLE_DEVICES=0", "BASH_FUNC_ml%%=() { :; }", "OLDPWD=/", "HOME=/h",
       "SSH_CONNECTION=x", "XDG_RUNTIME_DIR=/run", "LD_LIBRARY_PATH=/l", "OUTER_KEY=5"},
      {{"MY_KEY", std::nullopt}});
  EXPECT_THAT(result.variables, testing::ElementsAre("PATH=/bin", "LD_LIBRARY_PATH=/l"));
  EXPECT_THAT(result.withheld, testing::ElementsAre("AWS_SECRET_ACCESS_KEY", "hf_token",
                                                    "LD_PRELOAD", "DB_PASSWORD", "OUTER_KEY"));
  EXPECT_THAT(without({"A=1", "B=2", "AB=3"}, {"A"}), testing::ElementsAre("B=2", "AB=3"));
}

TEST(RankEnvironmentTest, AnExportWithoutAValueTakesHvdrunsOwn) {
  EXPECT_THAT(exported_variables({{"A", "1"}, {"B", std::nullopt}, {"C", std::nullopt}}, {"B=x=y"}),
              testing::ElementsAre("A=1", "B=x=y"));
}

TEST(DryRunTest, ALinePerRankThatAShellReadsBack) {
  Options options;
  options.program = {"./train", "two words", "it's"};
  const std::string text = dry_run(options, plan_ranks({{"localhost", 2}}, 2));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, HasSubstr("rank 1 on localhost: HVD_RANK=1 HVD_SIZE=2"));
  EXPECT_THAT(text, HasSubstr("./train 'two words' 'it'\\''s'\n"));
}

TEST(DryRunTest, ValuesThatTheUserGaveAreNotShown) {
  Options options;
  options.program = {"./train"};
  options.exports = {{"API_TOKEN", "tok"}, {"DATABASE", "me:pass@db"}, {"MASTER_ADDR", "b"}};
  options.tuning = {{"HVD_LOG", "plan"}};
  options.launcher = Launcher::local;
  const std::string text = dry_run(options, plan_ranks({{"localhost", 2}}, 2));
  EXPECT_THAT(text, testing::Not(HasSubstr("tok")));
  EXPECT_THAT(text, testing::Not(HasSubstr("pass")));
  EXPECT_THAT(text, HasSubstr(" API_TOKEN='<hidden>' DATABASE='<hidden>'"));
  EXPECT_THAT(text, HasSubstr(" MASTER_ADDR='<hidden>' "));
  EXPECT_THAT(text, HasSubstr(" HVD_LOG=plan "));
}

TEST(DryRunTest, OtherHosts) {
  Options options;
  options.program = {"./train"};
  options.tuning = {{"HVD_LOG", "plan"}};
  options.interfaces = "eth0";
  options.start_timeout = std::chrono::milliseconds{2'500};
  const Plan plan = plan_ranks({{"a.invalid", 1}, {"b.invalid", 1}}, 2);
  options.launcher = Launcher::ssh;
  EXPECT_THAT(dry_run(options, plan), HasSubstr("HVD_STORE='tcp:<address of a.invalid>:<port>'"));
  EXPECT_THAT(dry_run(options, plan),
              HasSubstr(" HVD_LOG=plan HVD_START_TIMEOUT=2.5 HVD_NETWORK_INTERFACES=eth0 "));
}

TEST(DryRunTest, OtherHostsChooseTheCoresOfTheirRanksThemselves) {
  const Plan plan = plan_ranks({{"a.invalid", 2}, {"b.invalid", 1}}, 3);
  Options options;
  options.program = {"./train"};
  options.launcher = Launcher::ssh;
  const std::string there = ", CPUs chosen there";
  EXPECT_THAT(places_of_ranks(options, plan), testing::ElementsAre(there, there, ""));
  EXPECT_THAT(dry_run(options, plan, places_of_ranks(options, plan)),
              HasSubstr("rank 1 on a.invalid, CPUs chosen there: HVD_RANK=1"));
  options.binding.to = BindTo::core;
  EXPECT_THAT(places_of_ranks(options, plan), testing::ElementsAre(there, there, there));
  options.binding.to = BindTo::none;
  EXPECT_THAT(places_of_ranks(options, plan), testing::ElementsAre("", "", ""));
}

}  // namespace
}  // namespace hvd::launcher
