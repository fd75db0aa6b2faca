// Tests hvdrun inside a Slurm allocation: parsing of Slurm's lists, and runs on two slurmd of this
// machine.
#include "plan/slurm.hpp"

#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_codes.hpp"
#include "directory.hpp"
#include "hvdrun.hpp"
#include "plan/launcher_choice.hpp"
#include "slurm_cluster.hpp"

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
  try {
    (void)choose_launcher(options, {"OMPI_MCA_orte_default_hostfile=/no/such"});
    ADD_FAILURE() << "accepted";
  } catch (const LaunchError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("'/no/such'"), HasSubstr("(from OMPI_MCA_orte_default_hostfile)")));
  }
  options.hosts = "localhost:4";
  EXPECT_EQ(choose_launcher(options, allocation).launcher, Launcher::local);
  options.hosts = "elsewhere:4";
  EXPECT_EQ(choose_launcher(options, {"PATH=/nowhere"}).launcher, Launcher::ssh);
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

TEST(SrunCommandTest, AnAgentIsNotConfinedToTheShareOfATask) {
  EXPECT_THAT(srun_variables({"SLURM_JOB_ID=1", "SLURM_CPUS_PER_TASK=8", "SRUN_CPUS_PER_TASK=8",
                              "SLURM_TRES_PER_TASK=cpu=8", "SLURM_GPUS_PER_TASK=1",
                              "SLURM_CPUS_PER_GPU=2", "SLURM_NTASKS_PER_GPU=1",
                              "SLURM_GPU_BIND=single:1", "SLURM_TRES_BIND=gres/gpu:single:1",
                              "SLURM_EXACT=1", "SLURM_MEM_PER_CPU=100"}),
              ElementsAre("SLURM_JOB_ID=1", "SLURM_MEM_PER_CPU=100"));
}

TEST(SrunCommandTest, AnAgentGetsTheGpusOfAllTasksOfItsNode) {
  using testing::Contains;
  using testing::Not;
  using testing::StartsWith;
  Variables own = {"SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=3,1"};
  EXPECT_THAT(srun_command("n1", "/hvdrun", own), Not(Contains(StartsWith("--gpus"))));
  own.emplace_back("SLURM_GPUS_PER_TASK=2");
  EXPECT_THAT(srun_command("n1", "/hvdrun", own), Contains("--gpus-per-node=6"));
  EXPECT_THAT(srun_command("n2", "/hvdrun", own), Contains("--gpus-per-node=2"));
  EXPECT_THAT(srun_command("n7", "/hvdrun", own), Not(Contains(StartsWith("--gpus"))));
  own.back() = "SLURM_GPUS_PER_TASK=a100:1,v100:2";
  EXPECT_THAT(srun_command("n1", "/hvdrun", own), Contains("--gpus-per-node=a100:3,v100:6"));
  own.back() = "SLURM_GPUS_PER_TASK=some";
  EXPECT_THAT(srun_command("n1", "/hvdrun", own), Not(Contains(StartsWith("--gpus"))));
}

/// Nodes n1 and n2, which are both this machine.
class SlurmTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (SlurmCluster::lacks().empty()) cluster_.emplace("n1", "n2");
  }
  static void TearDownTestSuite() { cluster_.reset(); }
  void SetUp() override {
    if (!cluster_) GTEST_SKIP() << "needs " << SlurmCluster::lacks();
  }

  static test::ProcessOptions in_cluster(std::vector<std::string> arguments) {
    return cluster_->command(std::move(arguments));
  }
  /// hvdrun in an allocation of two nodes with two tasks each.
  static test::ProcessOptions allocated(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"salloc", "--quiet", "--nodes=2", "--ntasks-per-node=2", HVDRUN});
    return in_cluster(std::move(arguments));
  }

 private:
  static inline std::optional<SlurmCluster> cluster_;
};

TEST_F(SlurmTest, RanksRunWhereTheAllocationIs) {
  const auto result = run(allocated(
      {"-np", "4", "sh", "-c", "echo $HVD_LOCAL_RANK/$HVD_LOCAL_SIZE on $SLURMD_NODENAME; pwd"}));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("[0]<stdout>:0/2 on n1\n"), HasSubstr("[1]<stdout>:1/2 on n1\n"),
                    HasSubstr("[2]<stdout>:0/2 on n2\n"), HasSubstr("[3]<stdout>:1/2 on n2\n")));
}

// Slurm from 22.05 on takes SRUN_CPUS_PER_TASK in place of SLURM_CPUS_PER_TASK, up to 23.02.
TEST_F(SlurmTest, ANodesAgentHasWhatAllTasksOfTheNodeHave) {
  auto options =
      in_cluster({"salloc", "--quiet", "--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=2",
                  "--gpus-per-task=2", HVDRUN, "-np", "4", "sh", "-c",
                  "echo cpus $SLURM_CPUS_ON_NODE gpus $SLURM_GPUS_ON_NODE, per task "
                  "$SLURM_CPUS_PER_TASK $SRUN_CPUS_PER_TASK $SLURM_GPUS_PER_TASK"});
  options.environment["SRUN_CPUS_PER_TASK"] = "1";
  const auto result = run(std::move(options));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  for (const char* rank : {"0", "3"}) {
    EXPECT_THAT(result.out,
                HasSubstr(fmt::format("[{}]<stdout>:cpus 4 gpus 4, per task 2 1 2\n", rank)));
  }
}

TEST_F(SlurmTest, RanksOfTheLibraryFindEachOther) {
  const auto result = run(allocated({"-np", "4", TRAIN}));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[3]<stdout>:rank 3 of 4 "));
  EXPECT_THAT(result.out, HasSubstr(" sum 6 ready\n"));
}

TEST_F(SlurmTest, AnElasticJobGoesOnWithoutANode) {
  const Directory directory;
  test::Process job(allocated({"-np", "4", "--min-np", "2", "--blacklist-cooldown-range",
                               "3600,3600", ELASTIC_LOOP, directory.path().string()}));
  const std::string line = "generation 1: worker 3 is rank 3 of 4, pid ";
  job.wait_for_out(line, test::in(kPatience));
  job.wait_for_out("worker 0 is rank 0 of 4", test::in(kPatience));
  const auto begin = job.out().find(line) + line.size();
  std::ifstream status("/proc/" + std::to_string(std::stoi(job.out().substr(begin))) + "/stat");
  std::string word;
  for (int i = 0; i < 4; ++i) status >> word;  // pid, name, state, parent
  ::kill(std::stoi(word), SIGKILL);            // the agent of n2
  job.wait_for_out("worker 0 is rank 0 of 2", test::in(kPatience));
  job.wait_for_out("worker 1 is rank 1 of 2", test::in(kPatience));
  std::ofstream{directory.path() / "stop"};
  const auto result = job.wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
}

TEST_F(SlurmTest, AnElasticJobGoesOnWithoutANodeThatSlurmTakesDown) {
  const Directory directory;
  test::Process job(
      in_cluster({"salloc", "--quiet", "--no-kill", "--nodes=2", "--ntasks-per-node=2", HVDRUN,
                  "-np", "4", "--min-np", "2", "--blacklist-cooldown-range", "3600,3600",
                  ELASTIC_LOOP, directory.path().string()}));
  job.wait_for_out("worker 3 is rank 3 of 4", test::in(kPatience));
  const auto set_state = [](const std::string& state) {
    EXPECT_EQ(
        run(in_cluster({"scontrol", "update", "NodeName=n2", "State=" + state, "Reason=test"}))
            .exit_code(),
        0);
  };
  set_state("DOWN");
  job.wait_for_out("worker 0 is rank 0 of 2", test::in(kPatience));
  job.wait_for_out("worker 1 is rank 1 of 2", test::in(kPatience));
  std::ofstream{directory.path() / "stop"};
  const auto result = job.wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  set_state("RESUME");
}

// The page docs/how-to/slurm.md has these lines for the end of a batch script.
constexpr const char* kAfterHvdrun =
    "code=$?\n"
    "[ $code -ne 75 ] || scontrol requeue \"$SLURM_JOB_ID\"\n"
    "exit $code\n";

// Another set of ranks is one too many here, so that no timeout ends a job whose start takes long.
TEST_F(SlurmTest, AnElasticJobThatIsRequeuedStartsAgain) {
  const Directory directory;
  const fs::path out = directory.path() / "out";
  const fs::path script = directory.path() / "script";
  std::ofstream(script) << fmt::format(
      "#!/bin/sh\n"
      "echo restart ${{SLURM_RESTART_COUNT:-0}}\n"
      "'{}' -np 4 --min-np 2 --reset-limit 0 --blacklist-cooldown-range 3600,3600 '{}' '{}'\n"
      "{}",
      HVDRUN, ELASTIC_LOOP, directory.path().string(), kAfterHvdrun);
  const auto submitted =
      run(in_cluster({"sbatch", "--parsable", "--requeue", "--nodes=2", "--ntasks-per-node=2",
                      "--open-mode=append", "--output=" + out.string(), script.string()}));
  ASSERT_EQ(submitted.exit_code(), 0) << submitted.err;
  const std::string job = submitted.out.substr(0, submitted.out.find('\n'));
  std::time_t ended = 0;  // its first run
  const auto wait_for = [&](const std::string& text, std::size_t from) {
    const auto deadline = test::in(2 * kPatience);  // Slurm may look for jobs each minute only
    std::size_t found = std::string::npos;
    std::string said;
    while (found == std::string::npos && Clock::now() < deadline) {
      // Slurm lets a requeued job wait for two minutes, unless it is told another time. Before its
      // nodes have ended all of its first run, what they still report might count for the second.
      // In the second in which they ended it, slurmd refuses another run (`cred_revoked` in Slurm).
      if (run(in_cluster({"squeue", "-h", "-j", job, "-o", "%r"})).out == "BeginTime\n" &&
          run(in_cluster({"sinfo", "-h", "-N", "-o", "%T"})).out == "idle\nidle\n") {
        const std::time_t now = std::time(nullptr);
        if (ended == 0) ended = now;
        if (now > ended) {
          (void)run(in_cluster({"scontrol", "update", "JobId=" + job, "StartTime=now"}));
        }
      }
      said = fs::exists(out) ? directory.read("out") : "";
      found = said.find(text, from);
    }
    EXPECT_NE(found, std::string::npos) << text << " is not in:\n"
                                        << said << run(in_cluster({"scontrol", "show", "job"})).out
                                        << run(in_cluster({"sinfo", "-N", "-o", "%N %T %E"})).out;
    return found;
  };
  const std::string line = "worker 3 is rank 3 of 4, pid ";
  const auto at = wait_for(line, 0);
  ASSERT_NE(at, std::string::npos);
  ASSERT_NE(wait_for("\n", at), std::string::npos);  // the pid is there as a whole
  ::kill(std::stoi(directory.read("out").substr(at + line.size())), SIGKILL);
  const auto again = wait_for("restart 1\n", at);
  ASSERT_NE(again, std::string::npos);
  wait_for("generation 1: worker 0 is rank 0 of 4", again);
  std::ofstream{directory.path() / "stop"};
  wait_for("worker 0 has finished", again);
  // The processes of its steps outlive a cluster that ends before them.
  const auto deadline = test::in(kPatience);
  while (run(in_cluster({"squeue", "-h", "-j", job})).out != "") {
    ASSERT_LT(Clock::now(), deadline) << "the job does not end";
  }
}

TEST_F(SlurmTest, ABatchJobHasTheExitCodeOfHvdrun) {
  const Directory directory;
  const fs::path script = directory.path() / "script";
  std::ofstream(script) << fmt::format("#!/bin/sh\n'{}' -np 2 sh -c 'exit 3'\n{}", HVDRUN,
                                       kAfterHvdrun);
  const auto submitted =
      run(in_cluster({"sbatch", "--parsable", "--nodes=1", "--ntasks-per-node=2",
                      "--output=" + (directory.path() / "out").string(), script.string()}));
  ASSERT_EQ(submitted.exit_code(), 0) << submitted.err;
  const std::string job = submitted.out.substr(0, submitted.out.find('\n'));
  const auto deadline = test::in(kPatience);
  while (run(in_cluster({"squeue", "-h", "-j", job})).out != "") {
    ASSERT_LT(Clock::now(), deadline) << "the job does not end";
  }
  EXPECT_THAT(run(in_cluster({"scontrol", "show", "job", job})).out,
              HasSubstr("JobState=FAILED Reason=NonZeroExitCode"));
}

// Slurm signals all processes of the steps: the guards, the agents and the ranks.
TEST_F(SlurmTest, ScancelStopsAllRanksAfterTheSameStep) {
  for (const char* signal : {"TERM", "USR1"}) {
    test::Process job(allocated({"-np", "4", STOPPING}));
    for (int rank = 0; rank < 4; ++rank) {
      job.wait_for_out(fmt::format("[{}]<stdout>:pid ", rank), test::in(kPatience));
    }
    const std::string id = run(in_cluster({"squeue", "-h", "-o", "%i"})).out;
    const auto asked = run(
        in_cluster({"scancel", fmt::format("--signal={}", signal), id.substr(0, id.find('\n'))}));
    EXPECT_EQ(asked.exit_code(), 0) << asked.err;
    const auto result = job.wait(test::in(kPatience));
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    const std::string words = ":stopped after ";
    const auto at = result.out.find(words);
    ASSERT_NE(at, std::string::npos) << result.out << result.err;
    const std::string line = result.out.substr(at, result.out.find('\n', at) - at + 1);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_THAT(result.out, HasSubstr(fmt::format("[{}]<stdout{}", rank, ">" + line)));
    }
  }
}

// Slurm also signals hvdrun and its srun clients then, in any order.
TEST_F(SlurmTest, ACancelledBatchJobStopsAfterTheSameStep) {
  for (const bool elastic : {false, true}) {
    const Directory directory;
    const fs::path out = directory.path() / "out";
    const fs::path script = directory.path() / "script";
    const std::string program =
        elastic ? fmt::format("--min-np 2 '{}' '{}'", ELASTIC_LOOP, directory.path().string())
                : fmt::format("'{}' slow", STOPPING);
    std::ofstream(script) << fmt::format("#!/bin/sh\nexec '{}' -np 4 {}\n", HVDRUN, program);
    const auto submitted =
        run(in_cluster({"sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=2",
                        "--output=" + out.string(), script.string()}));
    ASSERT_EQ(submitted.exit_code(), 0) << submitted.err;
    const std::string job = submitted.out.substr(0, submitted.out.find('\n'));
    const auto deadline = test::in(kPatience);
    std::string said;
    const auto said_by_all = [&](const std::string& words) {
      said = fs::exists(out) ? directory.read("out") : "";
      for (int rank = 0; rank < 4; ++rank) {
        if (said.find(fmt::format("[{}]<stdout>:{}", rank, words)) == std::string::npos) {
          return false;
        }
      }
      return true;
    };
    while (!said_by_all(elastic ? "generation 1" : "pid")) ASSERT_LT(Clock::now(), deadline);
    ASSERT_EQ(run(in_cluster({"scancel", job})).exit_code(), 0);
    while (!run(in_cluster({"squeue", "-h", "-j", job})).out.empty()) {
      ASSERT_LT(Clock::now(), deadline);
    }
    ASSERT_TRUE(said_by_all(elastic ? "worker" : "stopped after")) << said;
    EXPECT_THAT(said, HasSubstr("hvdrun: received signal 15 (SIGTERM)"));
    const std::string words = elastic ? " stops after step " : ":stopped after ";
    const auto at = said.find(words);
    ASSERT_NE(at, std::string::npos) << said;
    const std::string line = said.substr(at, said.find('\n', at) - at + 1);
    std::size_t lines = 0;
    for (auto next = at; next != std::string::npos; next = said.find(line, next + 1)) ++lines;
    EXPECT_EQ(lines, 4U) << said;
  }
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
  // When a new job gets both nodes exclusively, the steps have ended.
  const auto next =
      run(in_cluster({"srun", "--quiet", "--nodes=2", "--exclusive", "--mpi=none", "true"}));
  EXPECT_EQ(next.exit_code(), 0) << next.err;
}

}  // namespace
}  // namespace hvd::launcher
