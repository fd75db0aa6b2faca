// hvdrun inside a Slurm allocation: what the lists mean, and runs on two slurmd of this machine.
#include "slurm.hpp"

#include <array>
#include <filesystem>
#include <fstream>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "directory.hpp"
#include "exit_codes.hpp"
#include "hvdrun.hpp"
#include "launcher_choice.hpp"
#include "this_host.hpp"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(SlurmListTest, Nodes) {
  EXPECT_THAT(expand_nodelist("a"), ElementsAre("a"));
  EXPECT_THAT(expand_nodelist("a,n[1-3,7],b[08-10]-ib"),
              ElementsAre("a", "n1", "n2", "n3", "n7", "b08-ib", "b09-ib", "b10-ib"));
  EXPECT_THAT(expand_nodelist("r[1-2]n[3-4]"), ElementsAre("r1n3", "r1n4", "r2n3", "r2n4"));
  for (const char* wrong : {"", "a,", "n[1", "n[]", "n[3-1]", "n[a-b]", "n[1-99999999]", "-x",
                            "a b", "n[1-300][1-300]", "$(id)", "n]1["}) {
    EXPECT_THROW((void)expand_nodelist(wrong), LaunchError) << wrong;
  }
}

TEST(SlurmListTest, Counts) {
  EXPECT_THAT(expand_counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  for (const char* wrong : {"", "x", "2(x", "2(x)", "2(y3)", "1,,2", "1(x99999999)"}) {
    EXPECT_THROW((void)expand_counts(wrong), LaunchError) << wrong;
  }
}

TEST(LauncherChoiceTest, GoesByHostsAndAllocation) {
  const Variables allocation = {"SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1-2]",
                                "SLURM_TASKS_PER_NODE=3,1"};
  Options options;
  options.num_proc = 4;
  EXPECT_EQ(choose_launcher(options, {}).launcher, Launcher::local);
  EXPECT_EQ(choose_launcher(options, {}).hosts, (std::vector<HostSpec>{{"localhost", 4}}));
  EXPECT_EQ(choose_launcher(options, allocation).launcher, Launcher::slurm);
  EXPECT_EQ(choose_launcher(options, allocation).hosts,
            (std::vector<HostSpec>{{"n1", 3}, {"n2", 1}}));
  options.hosts = "localhost:4";
  EXPECT_EQ(choose_launcher(options, allocation).launcher, Launcher::local);
  options.hosts = "elsewhere:4";
  EXPECT_EQ(choose_launcher(options, {"PATH=/nowhere"}).launcher, Launcher::ssh);
  const Directory open_mpi;
  for (const char* name : {"mpirun", "orterun"}) fs::copy_file("/bin/true", open_mpi.path() / name);
  const Variables with_mpirun = {"PATH=" + open_mpi.path().string()};
  EXPECT_EQ(choose_launcher(options, with_mpirun).launcher, Launcher::mpirun);
  options.hosts = "me@elsewhere:4";
  EXPECT_EQ(choose_launcher(options, with_mpirun).launcher, Launcher::ssh);
  options.hosts = "elsewhere:4";
  options.launcher = Launcher::local;
  EXPECT_THROW((void)choose_launcher(options, {}), LaunchError);
  options.launcher = Launcher::slurm;
  EXPECT_THROW((void)choose_launcher(options, {}), LaunchError);
}

TEST(LauncherChoiceTest, CpusCountWhereTasksWereNotAskedFor) {
  EXPECT_EQ(
      slurm_hosts({"SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=a,b", "SLURM_JOB_CPUS_PER_NODE=4(x2)"}),
      (std::vector<HostSpec>{{"a", 4}, {"b", 4}}));
  EXPECT_EQ(slurm_hosts({"SLURM_JOB_ID=1"}), std::nullopt);
}

/// Free for the moment.
int free_port() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), generic, size) != 0 ||
      ::getsockname(socket.get(), generic, &size) != 0) {
    throw std::runtime_error("no port");
  }
  return ntohs(address.sin_port);
}

/// A cluster of two nodes, n1 and n2, which are both this machine.
class SlurmTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (::geteuid() != 0) lacks_ = "root";
    for (const char* program : {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/srun"}) {
      if (!fs::exists(program)) lacks_ = program;
    }
    if (lacks_.empty()) start_cluster();
  }
  static void TearDownTestSuite() {
    for (auto& daemon : daemons_) daemon.reset();
    directory_.reset();
  }
  void SetUp() override {
    if (!lacks_.empty()) GTEST_SKIP() << "needs " << lacks_;
  }

  static test::ProcessOptions in_cluster(std::vector<std::string> arguments) {
    test::ProcessOptions options;
    options.arguments = std::move(arguments);
    options.environment = {{"SLURM_CONF", (directory_->path() / "slurm.conf").string()}};
    options.directory = directory_->path();
    return options;
  }
  /// hvdrun in an allocation of two nodes with two tasks each.
  static test::ProcessOptions allocated(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"salloc", "--quiet", "--nodes=2", "--ntasks-per-node=2", HVDRUN});
    return in_cluster(std::move(arguments));
  }

 private:
  static void start_cluster() {
    directory_.emplace();
    const std::string place = directory_->path();
    std::ofstream(directory_->path() / "slurm.conf") << fmt::format(
        kConfiguration, own_host_name(), place, free_port(), free_port(), free_port());
    for (const char* name : {"state", "spool.n1", "spool.n2"}) {
      fs::create_directory(directory_->path() / name);
    }
    daemons_[0].emplace(in_cluster({"/usr/sbin/slurmctld", "-D"}));
    daemons_[1].emplace(in_cluster({"/usr/sbin/slurmd", "-D", "-N", "n1"}));
    daemons_[2].emplace(in_cluster({"/usr/sbin/slurmd", "-D", "-N", "n2"}));
    const auto deadline = test::in(kPatience);
    while (run(in_cluster({"sinfo", "-h", "-t", "idle", "-o", "%D"})).out != "2\n") {
      if (Clock::now() > deadline) throw std::runtime_error("the cluster does not come up");
      ::usleep(50'000);
    }
  }

  static constexpr const char* kConfiguration = R"(ClusterName=test
SlurmctldHost={0}(127.0.0.1)
SlurmctldPort={2}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={1}/state
SlurmdSpoolDir={1}/spool.%n
SlurmctldPidFile={1}/ctld.pid
SlurmdPidFile={1}/%n.pid
SlurmctldLogFile={1}/ctld.log
SlurmdLogFile={1}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
MpiDefault=none
NodeName=n1 NodeHostname={0} NodeAddr=127.0.0.1 Port={3} CPUs=4
NodeName=n2 NodeHostname={0} NodeAddr=127.0.0.1 Port={4} CPUs=4
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
)";
  static inline std::string lacks_;
  static inline std::optional<Directory> directory_;
  static inline std::array<std::optional<test::Process>, 3> daemons_;
};

TEST_F(SlurmTest, RanksRunWhereTheAllocationIs) {
  const auto result = run(allocated(
      {"-np", "4", "sh", "-c", "echo $HVD_LOCAL_RANK/$HVD_LOCAL_SIZE on $SLURMD_NODENAME; pwd"}));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("[0]<stdout>:0/2 on n1\n"), HasSubstr("[1]<stdout>:1/2 on n1\n"),
                    HasSubstr("[2]<stdout>:0/2 on n2\n"), HasSubstr("[3]<stdout>:1/2 on n2\n")));
}

TEST_F(SlurmTest, RanksOfTheLibraryFindEachOther) {
  const auto result = run(allocated({"-np", "4", TRAIN}));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[3]<stdout>:rank 3 of 4 "));
  EXPECT_THAT(result.out, HasSubstr(" sum 6 ready\n"));
}

TEST_F(SlurmTest, AFailureIsReportedAsEver) {
  const auto result =
      run(allocated({"-np", "4", "sh", "-c", "test $HVD_RANK = 2 && exit 7; exec sleep 600"}));
  EXPECT_EQ(result.exit_code(), 7);
  EXPECT_THAT(result.err, AllOf(HasSubstr("hvdrun: rank 2 on n2 (local 0, pid "),
                                HasSubstr(") exited 7 after ")));
}

TEST_F(SlurmTest, ANodeOutsideOfTheAllocationIs69) {
  const auto result = run(allocated({"-np", "1", "-H", "n7", "true"}));
  EXPECT_EQ(result.exit_code(), 69);
  EXPECT_THAT(result.err, HasSubstr("hvdrun: cannot reach n7: "));
}

TEST_F(SlurmTest, TooManyRanksAreAUsageError) {
  EXPECT_EQ(run(allocated({"-np", "5", "true"})).exit_code(), 64);
}

TEST_F(SlurmTest, AKilledLauncherTakesEverythingAlong) {
  const Directory directory;
  test::Lifeline lifeline;
  auto options = allocated({"-np", "4", "sh", "-c", "echo ready; exec sleep 600"});
  options.inherited = {lifeline.fd()};
  test::Process job(std::move(options));
  for (int rank = 0; rank < 4; ++rank) {
    job.wait_for_out(fmt::format("[{}]<stdout>:ready\n", rank), test::in(kPatience));
  }
  std::ifstream children(fmt::format("/proc/{}/task/{}/children", job.pid(), job.pid()));
  pid_t hvdrun = 0;
  ASSERT_TRUE(children >> hvdrun);
  ASSERT_EQ(::kill(hvdrun, SIGKILL), 0);
  (void)job.wait(test::in(kPatience));
  // The steps are over when a new job gets both nodes whole.
  const auto next =
      run(in_cluster({"srun", "--quiet", "--nodes=2", "--exclusive", "--mpi=none", "true"}));
  EXPECT_EQ(next.exit_code(), 0) << next.err;
}

}  // namespace
}  // namespace hvd::launcher
