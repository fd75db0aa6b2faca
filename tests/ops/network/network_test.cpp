// Tests jobs over several hosts, which are network namespaces with real links that are counted,
// slowed and cut.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "hosts.hpp"

namespace hvd::test {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

Deadline late() { return in(seconds(50)); }

/// A file with 32 bytes that no other user may read.
class SecretFile {
 public:
  SecretFile() {
    std::string path = testing::TempDir() + "hvd-network-XXXXXX";
    const UniqueFd file(::mkstemp(path.data()));  // 0600
    path_ = path;
    const std::string secret(32, 's');
    if (::write(file.get(), secret.data(), secret.size()) != 32) path_.clear();
  }
  ~SecretFile() { ::unlink(path_.c_str()); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Network : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string needs = Hosts::missing(); !needs.empty()) {
      GTEST_SKIP() << "needs " << needs;
    }
    hosts_ = std::make_unique<Hosts>(std::ssize(kSlots));
  }

  /// Starts the program of every rank with these arguments.
  void start(const std::vector<std::string>& arguments,
             std::map<std::string, std::optional<std::string>> environment = {}) {
    // No other program is in the namespace, so any port is free.
    const std::string store = "tcp:" + hosts_->address(0) + ":29500";
    int size = 0;
    for (const int slots : kSlots) size += slots;
    int rank = 0;
    for (int host = 0; host < std::ssize(kSlots); ++host) {
      for (int i = 0; i < kSlots[static_cast<std::size_t>(host)]; ++i, ++rank) {
        std::vector<std::string> program{HVD_TEST_NETWORK_RANK};
        if (rank == 0) program.insert(program.end(), {"--serve", store});
        program.insert(program.end(), arguments.begin(), arguments.end());
        ProcessOptions options;
        options.arguments = hosts_->on(host, std::move(program));
        options.environment = environment;
        options.environment.insert({{"HVD_RANK", std::to_string(rank)},
                                    {"HVD_SIZE", std::to_string(size)},
                                    {"HVD_STORE", store},
                                    {"HVD_JOB_ID", "network"},
                                    {"HVD_SECRET_FILE", secret_.path()},
                                    {"HVD_NETWORK_INTERFACES", Hosts::kDevice},
                                    // A busy machine delays heartbeats; tests of silence wait
                                    // longer.
                                    {"HVD_PEER_TIMEOUT_MS", "4000"},
                                    {"HVD_HOST_TIMEOUT_S", "4"},
                                    {"HVD_COLLECTIVE_TIMEOUT_S", "20"}});
        ranks_.push_back({host, std::make_unique<Process>(std::move(options))});
      }
    }
    for (const Rank& one : ranks_) one.process->wait_for_out("ready", late());
  }

  /// Returns the last output of each rank when all have ended.
  std::vector<std::string> finish() {
    std::vector<std::string> last;
    for (const Rank& one : ranks_) {
      const ProcessResult result = one.process->wait(late());
      EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
      const std::size_t line = result.out.find('\n');
      last.push_back(line == std::string::npos ? "" : result.out.substr(line + 1));
    }
    return last;
  }

  /// Checks that errors come soon after `struck`, because of missing heartbeats, since other
  /// deadlines are later.
  void expect_typed_errors_soon_and_nothing_left(Clock::time_point struck) {
    for (const std::string& said : finish()) {
      EXPECT_THAT(said, AnyOf(StartsWith("error peer lost"), StartsWith("error timeout")));
    }
    EXPECT_LT(Clock::now() - struck, seconds(15));
    expect_nothing_left();
  }

  /// Checks that sums over the interface of this name use that link only, and that each byte
  /// crosses it once.
  void expect_bytes_once_over(const std::string& device) {
    constexpr double kCount = 3'000'000;
    constexpr double kRepeats = 3;
    start({"3000000", "3"}, {{"HVD_NETWORK_INTERFACES", device}});
    const double hosts = static_cast<double>(std::ssize(kSlots));
    const double payload = kRepeats * 2 * (hosts - 1) / hosts * kCount * sizeof(float);
    for (const std::string& said : finish()) {
      std::array<double, 4> bytes{};  // sent and received by each
      ASSERT_EQ(std::sscanf(said.c_str(), "ok %lf %lf %lf %lf", &bytes[0], &bytes[1], &bytes[2],
                            &bytes[3]),
                4)
          << said;
      if (device == Hosts::kOther) std::rotate(bytes.begin(), bytes.begin() + 2, bytes.end());
      // Ethernet, IP and TCP headers take 66 of 1514 bytes. Acknowledgements and heartbeats are
      // added.
      for (const double carried : {bytes[0], bytes[1]}) {
        EXPECT_GE(carried, payload);
        EXPECT_LE(carried, payload * 1.1);
      }
      // The kernel sends ARP requests now and then.
      for (const double carried : {bytes[2], bytes[3]}) EXPECT_LE(carried, payload / 1000);
    }
  }

  void expect_nothing_left() {
    for (int host = 0; host < std::ssize(kSlots); ++host) {
      EXPECT_EQ(hosts_->processes(host), "") << "on host " << host;
    }
  }

  struct Rank {
    int host;
    std::unique_ptr<Process> process;
  };
  static inline const std::vector<int> kSlots{3, 2, 1};
  SecretFile secret_;
  std::unique_ptr<Hosts> hosts_;
  std::vector<Rank> ranks_;  // destroyed before the hosts
};

TEST_F(Network, ALinkCarriesTheBytesOnce) { expect_bytes_once_over(Hosts::kDevice); }

TEST_F(Network, SoDoesTheOtherLinkWhenItIsTheOneThatIsNamed) {
  expect_bytes_once_over(Hosts::kOther);
}

TEST_F(Network, SmallAndOddSizesAreRight) {
  start({"1003", "200"});
  for (const std::string& said : finish()) EXPECT_THAT(said, StartsWith("ok "));
}

TEST_F(Network, ProcessSetsWithinHostsAndAcrossThem) {
  start({"300000", "5", "0,1,2", "3,4", "1,2,3,4", "0,3,5", "2,5"});
  for (const std::string& said : finish()) EXPECT_THAT(said, StartsWith("ok "));
}

TEST_F(Network, AProcessSetWithinAHostLeavesTheLinksAlone) {
  constexpr long kBytes = 3'000'000 * 3 * sizeof(float);
  start({"3000000", "3", "0,1,2", "3,4", "5"});
  for (const std::string& said : finish()) {
    long sent = 0;
    long received = 0;
    ASSERT_EQ(std::sscanf(said.c_str(), "ok %ld %ld", &sent, &received), 2) << said;
    EXPECT_LE(std::max(sent, received), kBytes / 10);  // control messages and heartbeats
  }
}

TEST_F(Network, ALinkThatDripsIsSlowAndRight) {
  for (int host = 0; host < std::ssize(kSlots); ++host) hosts_->limit(host, "8mbit");
  start({"100003", "2"});
  for (const std::string& said : finish()) EXPECT_THAT(said, StartsWith("ok "));
}

TEST_F(Network, ACutLinkIsATypedErrorOnEveryRank) {
  hosts_->limit(2, "200mbit");  // so that the bytes are on their way
  start({"2000000", "1", "wait"});
  const auto struck = Clock::now();
  hosts_->cut(2);
  expect_typed_errors_soon_and_nothing_left(struck);
}

TEST_F(Network, ABlackHoleIsATypedErrorOnEveryRank) {
  hosts_->limit(0, "200mbit");
  start({"2000000", "1", "wait"});
  const auto struck = Clock::now();
  hosts_->blackhole(0);  // where the store and rank 0 are
  expect_typed_errors_soon_and_nothing_left(struck);
}

TEST_F(Network, ARankThatStopsAloneOnItsHostIsNotWaitedForAsASilentHostIs) {
  start({"1000", "1", "wait"}, {{"HVD_PEER_TIMEOUT_MS", "1500"}, {"HVD_HOST_TIMEOUT_S", "60"}});
  const std::size_t alone = ranks_.size() - 1;
  const auto struck = Clock::now();
  ranks_[alone].process->signal(SIGSTOP);
  for (std::size_t rank = 0; rank < alone; ++rank) {
    const ProcessResult result = ranks_[rank].process->wait(late());
    EXPECT_THAT(result.out, AllOf(HasSubstr(fmt::format("peer lost: rank {} on", alone)),
                                  HasSubstr("though its host answers")));
  }
  EXPECT_LT(Clock::now() - struck, seconds(15));
  ranks_[alone].process->signal(SIGKILL);
  EXPECT_EQ(ranks_[alone].process->wait(late()).signal(), SIGKILL);
  expect_nothing_left();
}

struct Strike {
  const char* name;
  const char* ways;
  const char* ring;
  const char* point;
  const char* visit;
  int victim;
  const char* operation = "1,2,3,4";  // sums in this set, or "own"
};

void PrintTo(const Strike& strike, std::ostream* out) { *out << strike.name; }

// Strikes in the set of ranks 1 and 2 on the first host and 3 and 4 on the second; 1 and 3 are the
// leaders.
constexpr std::array kStrikes{
    Strike{"lanes_reducing", "lanes/262144", "ring", "reducescatter", "3", 4},
    Strike{"lanes_crossing", "lanes/262144", "ring", "exchange", "3", 3},
    Strike{"lanes_within_a_message", "lanes/262144", "ring", "message", "2", 2},
    Strike{"lanes_spreading", "lanes/262144", "ring", "allgather", "2", 4},
    Strike{"leaders_reducing", "leaders", "ring", "allreduce", "1", 4},
    Strike{"leaders_crossing", "leaders", "ring", "exchange", "2", 3},
    Strike{"leaders_doubling", "leaders", "doubling", "exchange", "1", 1},
    Strike{"leaders_spreading", "leaders", "ring", "broadcast", "1", 2},
};

// Strikes in user-defined reductions and messages of all ranks. Such a reduction is an alltoall of
// five exchanges, whatever the hosts, and then an allgather of as many. After it each rank sends a
// message to the next rank and receives one from the previous.
constexpr std::array kOwnStrikes{
    Strike{"own_reduction_giving", "lanes", "ring", "exchange", "3", 4, "own"},
    Strike{"own_reduction_between", "lanes", "ring", "exchange", "6", 4, "own"},
    Strike{"own_message_to_another_host", "lanes", "ring", "exchange", "11", 2, "own"},
    Strike{"own_message_from_another_host", "lanes", "ring", "exchange", "11", 3, "own"},
    Strike{"own_message_within_a_host", "lanes", "ring", "broadcast", "1", 1, "own"},
};

class NetworkDeath : public Network, public testing::WithParamInterface<std::tuple<Strike, int>> {};

TEST_P(NetworkDeath, IsThePeerThatEveryRankNames) {
  const auto& [strike, fate] = GetParam();
  start({"--strike", std::to_string(strike.victim), std::to_string(fate), strike.point,
         strike.visit, strike.ways, strike.ring, "250000", "1", "wait", strike.operation},
        {{"HVD_PEER_TIMEOUT_MS", "1500"}, {"HVD_HOST_TIMEOUT_S", "60"}});
  const auto began = Clock::now();
  const std::string lost = fmt::format("rank {}", strike.victim);
  for (int rank = 0; rank < std::ssize(ranks_); ++rank) {
    if (rank == strike.victim) continue;
    const ProcessResult result = ranks_[static_cast<std::size_t>(rank)].process->wait(late());
    EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("\nerror peer lost"), HasSubstr(lost)));
    if (fate == SIGSTOP) {
      EXPECT_THAT(result.out, HasSubstr("though its host answers"));
    }
  }
  EXPECT_LT(Clock::now() - began, seconds(15));
  const Process& victim = *ranks_[static_cast<std::size_t>(strike.victim)].process;
  victim.signal(SIGKILL);  // if it is not dead, it has stopped
  EXPECT_EQ(ranks_[static_cast<std::size_t>(strike.victim)].process->wait(late()).signal(),
            SIGKILL);
  expect_nothing_left();
}

std::string name_of(const testing::TestParamInfo<std::tuple<Strike, int>>& one) {
  return fmt::format("{}_{}", std::get<0>(one.param).name,
                     std::get<1>(one.param) == SIGKILL ? "killed" : "stopped");
}

INSTANTIATE_TEST_SUITE_P(Points, NetworkDeath,
                         testing::Combine(testing::ValuesIn(kStrikes),
                                          testing::Values(SIGKILL, SIGSTOP)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Own, NetworkDeath,
                         testing::Combine(testing::ValuesIn(kOwnStrikes),
                                          testing::Values(SIGKILL, SIGSTOP)),
                         name_of);

/// Makes a program that replaces ssh, so that mpirun reaches the hosts, each under its own name.
std::string agent(const Hosts& hosts, const std::string& path) {
  std::string cases;
  for (int host = 0; host < 3; ++host) {
    cases += fmt::format("{}) space={} ;;\n", hosts.address(host), hosts.name(host));
  }
  std::ofstream(path) << "#!/bin/sh\ncase $1 in\n"
                      << cases << "*) exit 69 ;;\nesac\nshift\n"
                      << "exec ip netns exec $space unshare --uts "
                         "sh -c 'hostname $0 && exec sh -c \"$1\"' $space \"$*\"\n";
  ::chmod(path.c_str(), 0700);
  return path;
}

TEST_F(Network, MpiWorksBetweenTheHostsOnly) {
  if (!*HVD_TEST_MPIRUN) GTEST_SKIP() << "needs Open MPI 4";
  const std::string path = testing::TempDir() + fmt::format("hvd-agent-{}", ::getpid());
  const std::string slots =
      fmt::format("{}:3,{}:2,{}:1", hosts_->address(0), hosts_->address(1), hosts_->address(2));
  ProcessOptions options;
  options.arguments = {
      agent(*hosts_, path), hosts_->address(0),
      fmt::format("{} -H {} -np 6 --bind-to none --mca plm rsh --mca plm_rsh_agent {} --mca "
                  "oob_tcp_if_include 10.78.0.0/24 --mca btl_tcp_if_include 10.78.0.0/24 --mca pml "
                  "ob1 --mca btl tcp,vader,self -x HVD_BACKEND=mpi -x HVD_LOG=plan -x HVD_PLAN -x "
                  "HVD_NETWORK_INTERFACES=hvd0 -x OMPI_MCA_mpi_yield_when_idle=1 {} 1000000 2",
                  HVD_TEST_MPIRUN, slots, path, HVD_TEST_NETWORK_RANK)};
  // MPI's own algorithm for three ranks would send more bytes.
  options.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                         {"HVD_PLAN", "mpi/allreduce=ring"}};
  const ProcessResult result = run_process(std::move(options), late());
  ::unlink(path.c_str());
  EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
  EXPECT_THAT(result.out + result.err, HasSubstr("backend hierarchical (mpi)"));
  const double payload = 2 * 4.0 / 3 * 1e6 * sizeof(float);
  int ranks = 0;
  for (std::size_t at = result.out.find("ok "); at != std::string::npos;
       at = result.out.find("ok ", at + 1), ++ranks) {
    const double sent = std::strtod(result.out.c_str() + at + 3, nullptr);
    EXPECT_GE(sent, payload);
    EXPECT_LE(sent, payload * 1.15) << "mpirun's own messages come on top";
  }
  EXPECT_EQ(ranks, 6) << result.out << result.err;
}

TEST_F(Network, TheLogSaysThePlan) {
  start({"1000", "1"}, {{"HVD_LOG", "plan"}});
  std::string log;
  for (const Rank& one : ranks_) log += one.process->wait(late()).err;
  EXPECT_THAT(log, HasSubstr("from host to host: "));
  EXPECT_THAT(log, HasSubstr("allreduce 256 B: leaders "));
  EXPECT_THAT(log, HasSubstr("plan for tcp/3+2+1/streams=0: hosts="));
}

}  // namespace
}  // namespace hvd::test
