// Tests hvd_selftest: its advice, and whole runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "advice.hpp"
#include "hvdrun.hpp"
#include "rates.hpp"
#include "result_table.hpp"

namespace hvd::selftest {
namespace {

using launcher::hvdrun;
using launcher::kSelftestPatience;
using launcher::run;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// `ranks[h]` ranks on host h.
Findings findings_of(const std::vector<int>& ranks) {
  Findings findings;
  for (std::size_t host = 0; host < ranks.size(); ++host) {
    HostFacts facts;
    facts.name = std::string(1, static_cast<char>('a' + host));
    facts.cores = 8;
    facts.shared_memory = std::uint64_t{1} << 30;
    facts.interface = "eth0";
    facts.interfaces = {"eth0", "ib0"};
    findings.hosts.push_back(facts);
    for (int rank = 0; rank < ranks[host]; ++rank) {
      findings.topology.host_of.push_back(static_cast<int>(host));
    }
  }
  findings.topology.size = static_cast<int>(findings.topology.host_of.size());
  return findings;
}

void set_rates(Findings& findings, double within, double between) {
  for (const Pair& pair : pairs_to_measure(findings.topology)) {
    const auto& host_of = findings.topology.host_of;
    const bool same =
        host_of[static_cast<std::size_t>(pair.from)] == host_of[static_cast<std::size_t>(pair.to)];
    findings.rates.push_back({pair, same ? within : between});
  }
}

TEST(SelfTestPairsTest, AllPairsOfFewRanks) {
  EXPECT_THAT(pairs_to_measure(findings_of({2, 1}).topology),
              ElementsAre(Pair{0, 1}, Pair{0, 2}, Pair{1, 2}));
  EXPECT_THAT(pairs_to_measure(findings_of({1}).topology), IsEmpty());
  EXPECT_EQ(pairs_to_measure(findings_of({4, 4}).topology).size(), 28U);
}

TEST(SelfTestPairsTest, PairsOfHostsOfMany) {
  const auto pairs = pairs_to_measure(findings_of({8, 8, 8}).topology);
  EXPECT_THAT(pairs, testing::UnorderedElementsAre(Pair{0, 1}, Pair{0, 8}, Pair{0, 16}, Pair{8, 9},
                                                   Pair{8, 16}, Pair{16, 17}));
  const auto many = pairs_to_measure(findings_of(std::vector<int>(100, 2)).topology);
  EXPECT_LE(many.size(), kMostPairs);
  EXPECT_EQ(many.size(), 199U);
}

TEST(SelfTestAdviceTest, NothingToSayWhereAllIsWell) {
  Findings findings = findings_of({2, 2});
  set_rates(findings, 5e9, 2e9);
  EXPECT_THAT(advise(findings), IsEmpty());
}

TEST(SelfTestAdviceTest, ASlowNetworkSuggestsTheOtherInterface) {
  Findings findings = findings_of({2, 2});
  set_rates(findings, 5e9, 12e6);
  EXPECT_THAT(advise(findings),
              ElementsAre(AllOf(HasSubstr("12 MB/s"), HasSubstr("by eth0 and also has ib0"),
                                HasSubstr("--network-interfaces"))));
  findings.hosts[0].interfaces = findings.hosts[1].interfaces = {"eth0"};
  EXPECT_THAT(advise(findings), ElementsAre(Not(HasSubstr("--network-interfaces"))));
}

TEST(SelfTestAdviceTest, OneSlowPairIsNamed) {
  Findings findings = findings_of({1, 1, 1, 1});
  set_rates(findings, 0, 2e9);
  findings.rates[1].bytes_per_second = 200e6;
  EXPECT_THAT(advise(findings), ElementsAre(AllOf(HasSubstr("Rank 0 on a reaches rank 2 on c"),
                                                  HasSubstr("200 MB/s"), HasSubstr("2000"))));
}

TEST(SelfTestAdviceTest, HostsAndSecrets) {
  Findings findings = findings_of({2, 3});
  findings.hosts[0].cores = 1;
  findings.hosts[1].shared_memory = std::uint64_t{64} << 20;
  findings.has_secret = false;
  EXPECT_THAT(advise(findings),
              ElementsAre(HasSubstr("HVD_SECRET_FILE"), HasSubstr("2 ranks share 1 core of a"),
                          AllOf(HasSubstr("/dev/shm of b has 64 MiB"), HasSubstr("--shm-size")),
                          HasSubstr("different numbers of ranks")));
}

TEST(SelfTestFactsTest, ComeBackAsSent) {
  const HostFacts sent = findings_of({1}).hosts[0];
  const HostFacts back = facts_from(to_text(sent));
  EXPECT_EQ(back.name, "a");
  EXPECT_EQ(back.cores, 8);
  EXPECT_EQ(back.interfaces, sent.interfaces);
  EXPECT_THROW((void)facts_from("nonsense"), Error);
}

TEST(SelfTestReportTest, WrongResultsAreShownAlways) {
  EngineResult result{.name = "TCP", .available = true, .checks = {{"a", 0}, {"b", 7}}, .rate = {}};
  EXPECT_FALSE(passed(result));
  EXPECT_THAT(table(result, false),
              AllOf(HasSubstr("[!] TCP"), HasSubstr("[!] b: 7 elements"), Not(HasSubstr("[X] a"))));
  EXPECT_THAT(table(result, true), HasSubstr("[X] a"));
  result.available = false;
  EXPECT_THAT(table(result, true), HasSubstr("[ ] TCP: not available"));
}

TEST(SelfTestRunTest, EveryOperationOnEveryEngine) {
  const auto result = run(hvdrun({"-np", "3", "-x", "HVD_PLAN=default", "-x",
                                  "HVD_PEER_TIMEOUT_MS=20000", SELFTEST, "-v"}),
                          kSelftestPatience);
  EXPECT_EQ(result.exit_code(), 0) << result.err << result.out;
  for (const char* part :
       {"3 ranks on 1 host:", "[X] as configured:", "[X] shared memory:", "[X] TCP:",
        "[X] allreduce sum f32", "[X] allreduce product i64", "[X] allreduce max bf16",
        "[X] allgather", "[X] alltoall", "[X] reducescatter", "[X] send and recv",
        "[X] process set", "[X] barrier", "1 on ", "All results are right."}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
}

TEST(SelfTestRunTest, AloneWithoutHvdrun) {
  test::ProcessOptions options;
  options.arguments = {SELFTEST};
  const auto result = run(std::move(options));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("1 rank on 1 host:"), Not(HasSubstr("allgather"))));
}

TEST(SelfTestRunTest, FailuresHaveTheirCodes) {
  const auto failed = run(hvdrun({"-np", "2", "-x", "HVD_TRANSPORT=pigeon", SELFTEST}));
  EXPECT_EQ(failed.exit_code(), 1);
  EXPECT_THAT(failed.err, HasSubstr("HVD_TRANSPORT"));
  EXPECT_EQ(run(hvdrun({"-np", "1", SELFTEST, "--frobnicate"})).exit_code(), 64);
}

}  // namespace
}  // namespace hvd::selftest
