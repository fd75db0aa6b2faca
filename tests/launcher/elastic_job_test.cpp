// Tests elastic jobs whose workers the test kills, and whose hosts it changes.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <hvd/core/internal/fd.hpp>

#include "base/exit_codes.hpp"
#include "directory.hpp"
#include "hvdrun.hpp"
#include "plan/cpus.hpp"

namespace hvd::launcher {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

/// A job that trains in a directory of its own. A host that has failed stays out for an hour,
/// unless the options say otherwise.
class ElasticJobTest : public testing::Test {
 protected:
  ~ElasticJobTest() override {
    job_.reset();
    EXPECT_TRUE(lifeline_.all_gone(test::in(kPatience)));
  }

  void start(Words options) {
    options.insert(options.end(), {ELASTIC_LOOP, directory_.path().string()});
    if (std::find(options.begin(), options.end(), "--blacklist-cooldown-range") == options.end()) {
      options.insert(options.begin(), {"--blacklist-cooldown-range", "3600,3600"});
    }
    launch(hvdrun(std::move(options)));
  }
  void launch(test::ProcessOptions process) {
    process.inherited = {lifeline_.fd()};
    if (!search_path_.empty()) process.environment["PATH"] = search_path_;
    job_.emplace(std::move(process));
  }
  /// Other hosts are reached by this script in place of ssh.
  void replace_ssh(const std::string& script) {
    const auto ssh = directory_.path() / "ssh";
    std::ofstream(ssh) << "#!/bin/sh\n" << script << '\n';
    std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
    search_path_ = directory_.path().string() + ":" + std::getenv("PATH");
  }
  void write(const std::string& name, const std::string& text = "") const {
    const auto path = directory_.path() / name;
    std::ofstream(path.string() + ".new") << text;
    std::filesystem::rename(path.string() + ".new", path);
  }
  [[nodiscard]] std::string hosts_script() const {
    return "cat " + (directory_.path() / "hosts").string();
  }
  /// Returns the pid of the worker when it is this rank of `size`.
  pid_t wait_for(int worker, int rank, int size) {
    const std::string line = ": worker " + std::to_string(worker) + " is rank " +
                             std::to_string(rank) + " of " + std::to_string(size) + ", pid ";
    job_->wait_for_out(line, test::in(kPatience));
    const auto begin = job_->out().find(line) + line.size();
    return std::stoi(job_->out().substr(begin));
  }
  /// Lets the program end, and expects that hvdrun ends with 0.
  test::ProcessResult finish() {
    write("stop");
    test::ProcessResult result = job_->wait(test::in(kPatience));
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("has finished"));
    return result;
  }
  /// Expects that hvdrun ends as after this signal, and its three workers after the same step.
  void expect_same_step(int signal) {
    const auto result = wait();
    EXPECT_EQ(result.exit_code(), signal == SIGUSR1 ? 0 : kExitSignalBase + signal) << result.err;
    const std::string words = "stops after step ";
    const auto at = result.out.find(words) + words.size();
    const std::string step = result.out.substr(at, result.out.find('\n', at) - at);
    for (const char* worker : {"0", "1", "2"}) {
      EXPECT_THAT(result.out,
                  HasSubstr("worker " + std::string(worker) + " " + words + step + "\n"))
          << result.err;
      EXPECT_THAT(result.out, HasSubstr("worker " + std::string(worker) + " has finished"));
    }
  }
  /// Returns whether hvdrun has a file open whose path contains this.
  [[nodiscard]] bool has_open(const std::string& name) const {
    const std::string descriptors = "/proc/" + std::to_string(job_->pid()) + "/fd";
    const std::filesystem::directory_iterator all(descriptors);
    return std::any_of(begin(all), end(all), [&](const auto& entry) {
      std::error_code gone;
      const auto path = std::filesystem::read_symlink(entry.path(), gone).string();
      return path.find(name) != std::string::npos;
    });
  }
  /// Returns the agent of a worker.
  [[nodiscard]] static pid_t parent_of(pid_t worker) {
    std::ifstream status("/proc/" + std::to_string(worker) + "/stat");
    std::string word;
    for (int i = 0; i < 4; ++i) status >> word;  // pid, name, state, parent
    return std::stoi(word);
  }
  /// Returns the number of children of hvdrun.
  [[nodiscard]] int children() const {
    const std::string pid = std::to_string(job_->pid());
    std::ifstream list("/proc/" + pid + "/task/" + pid + "/children");
    return static_cast<int>(std::distance(std::istream_iterator<pid_t>(list), {}));
  }
  test::ProcessResult wait() { return job_->wait(test::in(kPatience)); }

  test::Lifeline lifeline_;
  Directory directory_;
  std::string search_path_;  ///< of hvdrun; empty: that of the test
  std::optional<test::Process> job_;
};

TEST_F(ElasticJobTest, ARunWithoutLossIsOneGeneration) {
  start({"-np", "2", "--min-np", "1"});
  wait_for(0, 0, 2);
  wait_for(1, 1, 2);
  EXPECT_EQ(finish().err, "");
}

TEST_F(ElasticJobTest, TheOthersGoOnWithoutAKilledRank) {
  start({"-np", "3", "--min-np", "2"});
  ::kill(wait_for(1, 1, 3), SIGKILL);
  wait_for(0, 0, 2);
  wait_for(2, 1, 2);
  EXPECT_THAT(finish().err,
              testing::ContainsRegex("worker 1 on localhost .pid [0-9]+, rank 1 of generation 1. "
                                     "was killed by SIGKILL"));
}

TEST_F(ElasticJobTest, TheOthersGoOnWithoutRankZero) {
  start({"-np", "3", "--min-np", "2"});
  wait_for(2, 2, 3);
  ::kill(wait_for(0, 0, 3), SIGKILL);
  wait_for(1, 0, 2);
  wait_for(2, 1, 2);
  (void)finish();
}

TEST_F(ElasticJobTest, RankZeroIsKilledInACollective) {
  start({"-np", "3", "--min-np", "2"});
  wait_for(0, 0, 3);
  wait_for(2, 2, 3);
  write("die_in_collective.0");
  wait_for(1, 0, 2);
  wait_for(2, 1, 2);
  (void)finish();
}

TEST_F(ElasticJobTest, TheFunctionOfRankZeroThrows) {
  start({"-np", "3", "--min-np", "2"});
  wait_for(0, 0, 3);
  wait_for(2, 2, 3);
  write("throw.0");
  wait_for(1, 0, 2);
  wait_for(2, 1, 2);
  EXPECT_THAT(finish().err, testing::AllOf(HasSubstr("worker threw: planned"),
                                           HasSubstr("rank 0 of generation 1) exited 4")));
}

TEST_F(ElasticJobTest, EachWorkerWritesFilesOfItsOwn) {
  start({"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0.1,1", "--output-filename",
         (directory_.path() / "logs").string()});
  ::kill(wait_for(0, 0, 2), SIGKILL);
  wait_for(2, 1, 2);
  // hvdrun opens and closes files on a thread of its own, in the order of the output.
  const auto deadline = test::in(kPatience);
  while (!has_open("worker.2/stdout") && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(has_open("worker.2/stdout"));
  EXPECT_TRUE(has_open("worker.1/stdout"));
  EXPECT_FALSE(has_open("worker.0/"));
  (void)finish();
  EXPECT_THAT(directory_.read("logs/worker.0/stdout"), HasSubstr("worker 0 is rank 0 of 2"));
  EXPECT_THAT(directory_.read("logs/worker.1/stdout"), HasSubstr("worker 1 is rank 0 of 1"));
  EXPECT_THAT(directory_.read("logs/worker.2/stdout"), HasSubstr("worker 2 is rank 1 of 2"));
}

TEST_F(ElasticJobTest, AFileSystemThatHangsDelaysOnlyTheOutput) {
  std::filesystem::create_directories(directory_.path() / "logs" / "worker.0");
  const auto file = directory_.path() / "logs" / "worker.0" / "stdout";
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);  // opening it hangs until somebody reads
  std::ofstream(directory_.path() / "logs" / "worker.0" / "stderr") << "of an earlier job";
  start({"-np", "2", "--min-np", "1", "--output-filename", (directory_.path() / "logs").string()});
  wait_for(0, 0, 2);
  ::kill(wait_for(1, 1, 2), SIGKILL);
  wait_for(0, 0, 1);
  const UniqueFd reader(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  (void)finish();
  std::array<char, 256> text{};
  const ssize_t size = ::read(reader.get(), text.data(), text.size());
  ASSERT_GT(size, 0);
  EXPECT_THAT(std::string(text.data(), static_cast<std::size_t>(size)),
              HasSubstr("worker 0 is rank 0 of 2"));
  EXPECT_EQ(directory_.read("logs/worker.0/stderr"), "");
  EXPECT_THAT(directory_.read("logs/worker.1/stdout"), HasSubstr("worker 1 is rank 1 of 2"));
}

/// The file of a worker's output, which hvdrun cannot open until the test reads it.
class LateOutput : public ElasticJobTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(file_.parent_path());
    ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  }
  void start_job(Words options = {}) {
    options.insert(options.end(),
                   {"-np", "1", "--min-np", "1", "--status", "--status-interval", "60",
                    "--output-filename", (directory_.path() / "logs").string()});
    start(std::move(options));
    wait_for(0, 0, 1);
  }
  /// Runs the job until hvdrun has asked the agent to end, and still has to write the file.
  void run_to_the_end() {
    write("stop");
    job_->wait_for_out("has finished", test::in(kPatience));
    ASSERT_TRUE(status_ended(*job_, test::in(kPatience)));
  }
  [[nodiscard]] std::string read_file() const {
    const UniqueFd reader(::open(file_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    return read_some(reader, 1'000'000, test::in(kPatience));
  }

  std::filesystem::path file_ = directory_.path() / "logs" / "worker.0" / "stdout";
};

TEST_F(LateOutput, OfAJobThatHasSucceededIsWritten) {
  start_job();
  run_to_the_end();
  // hvdrun says nothing more, and waits for longer than a job that has failed, which waits 0.4 s.
  EXPECT_THROW(job_->wait_for_err("no such text", test::in(std::chrono::seconds(1))),
               std::runtime_error);
  EXPECT_THAT(read_file(), HasSubstr("has finished"));
  EXPECT_EQ(wait().exit_code(), 0);
}

TEST_F(LateOutput, ThatCannotBeWrittenFailsTheJob) {
  std::filesystem::create_directory(file_.parent_path() / "stderr");  // where nothing is written
  start_job();
  run_to_the_end();
  EXPECT_THAT(read_file(), HasSubstr("has finished"));
  const auto result = wait();
  EXPECT_EQ(result.exit_code(), kExitResource);
  EXPECT_THAT(result.err, testing::ContainsRegex("hvdrun: cannot write to '.*logs': Is a dir"));
}

/// The script, which hangs, is ended with the job. Of the children of hvdrun only the agent is
/// left.
TEST_F(LateOutput, IsWaitedForWithoutTheScriptThatListsHosts) {
  start_job({"--host-discovery-script", "cd " + directory_.path().string() +
                                            "; test -e hang && { echo hangs >&2; exec sleep 600; };"
                                            "echo localhost:1"});
  write("hang");
  job_->wait_for_err("hangs\n", test::in(kPatience));
  run_to_the_end();
  const Deadline deadline = test::in(kPatience);
  while (children() > 1 && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(children(), 1);
  EXPECT_THAT(read_file(), HasSubstr("has finished"));
  EXPECT_EQ(wait().exit_code(), 0);
}

TEST_F(LateOutput, IsNotWaitedForAfterASignal) {
  start_job();
  run_to_the_end();
  job_->signal(SIGINT);
  EXPECT_EQ(wait().exit_code(), 128 + SIGINT);
}

/// When the job is over and the agent has ended, hvdrun still waits for a moment for its thread,
/// which opens the file.
TEST_F(LateOutput, DoesNotLetALateSignalChangeTheExitCode) {
  start_job();
  run_to_the_end();
  job_->signal(SIGINT);
  const Deadline deadline = test::in(kPatience);
  while (children() > 0 && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(signal_until_the_end(*job_, SIGINT, test::in(kPatience)));
  EXPECT_EQ(wait().exit_code(), 128 + SIGINT);
}

TEST_F(ElasticJobTest, EachGenerationHasATimeline) {
  start({"-np", "2", "--min-np", "1", "-x",
         "HVD_TIMELINE=" + (directory_.path() / "t.json").string()});
  ::kill(wait_for(1, 1, 2), SIGKILL);
  wait_for(0, 0, 1);
  (void)finish();
  for (const char* name : {"t.generation1.rank0.json", "t.generation2.rank0.json"}) {
    EXPECT_TRUE(std::filesystem::exists(directory_.path() / name)) << name;
  }
}

TEST_F(ElasticJobTest, AWorkerIsStartedInThePlaceOfADeadOne) {
  start({"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0.1,1"});
  ::kill(wait_for(0, 0, 2), SIGKILL);
  wait_for(1, 0, 1);
  wait_for(1, 0, 2);
  wait_for(2, 1, 2);
  (void)finish();
}

TEST_F(ElasticJobTest, ANewcomerThatDiesIsReplaced) {
  write("die.2");
  start({"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0.1,1"});
  ::kill(wait_for(0, 0, 2), SIGKILL);
  wait_for(3, 1, 2);
  EXPECT_THAT(finish().err, HasSubstr("never a rank"));
}

TEST_F(ElasticJobTest, ANewcomerThatDiesWhileItJoinsIsReplaced) {
  write("die_in_sync.2");
  start({"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0.1,1"});
  ::kill(wait_for(0, 0, 2), SIGKILL);
  wait_for(3, 1, 2);
  EXPECT_THAT(finish().err, testing::ContainsRegex("worker 2 on localhost .pid [0-9]+, rank 1 of "
                                                   "generation 3. was killed by SIGKILL"));
}

TEST_F(ElasticJobTest, RankZeroIsKilledWhileTheFirstGenerationStarts) {
  write("die_in_sync.0");
  start({"-np", "3", "--min-np", "2"});
  wait_for(1, 0, 2);
  wait_for(2, 1, 2);
  EXPECT_THAT(finish().err, HasSubstr("rank 0 of generation 1) was killed by SIGKILL"));
}

TEST_F(ElasticJobTest, AProgramThatFailsAtItsStartIsNotRetried) {
  job_.emplace(hvdrun({"-np", "2", "--min-np", "1", "sh", "-c", "echo why; exit 7"}));
  const auto result = wait();
  EXPECT_EQ(result.exit_code(), 7);
  EXPECT_THAT(result.err, testing::AllOf(HasSubstr("all workers have failed before they trained"),
                                         HasSubstr("<stdout>:why\n")));
}

TEST_F(ElasticJobTest, AWorkerThatCannotBeStartedIsReplacedWhileTheOthersTrain) {
  const auto program = directory_.path() / "train";
  std::filesystem::copy_file(ELASTIC_LOOP, program);
  launch(hvdrun({"--blacklist-cooldown-range", "0.1,1", "-np", "2", "--min-np", "1", program,
                 directory_.path()}));
  const pid_t lost = wait_for(1, 1, 2);
  wait_for(0, 0, 2);
  std::filesystem::rename(program, directory_.path() / "moved");
  ::kill(lost, SIGKILL);
  wait_for(0, 0, 1);
  job_->wait_for_err("worker 2 on localhost (never started) exited 127 ", test::in(kPatience));
  job_->wait_for_err(
      "[2]<stderr>:hvdrun: '" + program.string() + "': it or its interpreter was not found\n",
      test::in(kPatience));
  std::filesystem::rename(directory_.path() / "moved", program);
  job_->wait_for_out("generation 3: worker 0 is rank 0 of 2", test::in(kPatience));
  (void)finish();
}

// Its file exists, so the agent learns of the failure only when it starts the workers.
TEST_F(ElasticJobTest, AProgramThatCannotBeStartedIsNotRetried) {
  const auto program = directory_.path() / "script";
  std::ofstream(program) << "#!/no/such/interpreter\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  launch(hvdrun({"-np", "2", "--min-np", "1", program}));
  const auto result = wait();
  EXPECT_EQ(result.exit_code(), kExitNotFound);
  EXPECT_THAT(result.err,
              testing::AllOf(HasSubstr("all workers have failed before they trained"),
                             HasSubstr("script': it or its interpreter was not found")));
}

TEST_F(ElasticJobTest, TooFewRanksEndTheJob) {
  start({"-np", "2", "--min-np", "2", "--elastic-timeout", "3"});
  ::kill(wait_for(0, 0, 2), SIGKILL);
  const auto result = wait();
  EXPECT_EQ(result.exit_code(), kExitRetry);
  EXPECT_THAT(result.err, HasSubstr("1 of at least 2 workers (--min-np)"));
}

TEST_F(ElasticJobTest, TheLimitOfResetsEndsTheJob) {
  start({"-np", "3", "--min-np", "1", "--reset-limit", "1"});
  ::kill(wait_for(0, 0, 3), SIGKILL);
  ::kill(wait_for(1, 0, 2), SIGKILL);
  const auto result = wait();
  EXPECT_EQ(result.exit_code(), kExitRetry);
  EXPECT_THAT(result.err, HasSubstr("more than 1 times (--reset-limit)"));
}

TEST_F(ElasticJobTest, NobodyIsLeftWithTheState) {
  start({"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0.1,1"});
  const pid_t one = wait_for(0, 0, 2);
  const pid_t other = wait_for(1, 1, 2);
  ::kill(one, SIGKILL);
  ::kill(other, SIGKILL);
  const auto result = wait();
  EXPECT_EQ(result.exit_code(), kExitRetry);
  EXPECT_THAT(result.err, HasSubstr("has the state"));
}

TEST_F(ElasticJobTest, WorkersGetTheVariablesOfTheUser) {
  job_.emplace(
      hvdrun({"-np", "1", "--min-np", "1", "-x", "COLOUR=red", "sh", "-c",
              "echo colour $COLOUR; exec " ELASTIC_LOOP " " + directory_.path().string()}));
  job_->wait_for_out("colour red\n", test::in(kPatience));
  wait_for(0, 0, 1);
  (void)finish();
}

/// They also count where hvdrun chooses for all workers of a host.
TEST_F(ElasticJobTest, AgentsGetTheVariablesOfTheUserToo) {
  test::ProcessOptions threads = hvdrun({"-np", "1", "--min-np", "1", "-x", "OMP_NUM_THREADS=5",
                                         "sh", "-c", "echo threads $OMP_NUM_THREADS"});
  threads.environment["OMP_NUM_THREADS"] = std::nullopt;
  launch(std::move(threads));
  EXPECT_THAT(wait().out, HasSubstr(":threads 5\n"));
  launch(hvdrun({"-np", "1", "--min-np", "1", "-x", "PATH=/nowhere", "sh", "-c", "true"}));
  EXPECT_EQ(wait().exit_code(), kExitNotFound);
}

/// Worker 0 is killed by itself, and then with its agent.
TEST_F(ElasticJobTest, UnfinishedLinesAreWrittenAndFilesClosedWhenAWorkerHasEnded) {
  for (const bool with_agent : {false, true}) {
    std::filesystem::remove(directory_.path() / "stop");
    start({"-np", "2", "--min-np", "1", "-H", "localhost:1,127.0.0.1:1", "--output-filename",
           (directory_.path() / "logs").string(), "sh", "-c",
           "printf unfinished >&2; exec \"$0\" \"$1\""});
    wait_for(1, 1, 2);
    const pid_t worker = wait_for(0, 0, 2);
    ::kill(with_agent ? parent_of(worker) : worker, SIGKILL);
    job_->wait_for_err("[0]<stderr>:unfinished", test::in(kPatience));
    const Deadline deadline = test::in(kPatience);
    while (has_open("worker.0/") && Clock::now() < deadline) std::this_thread::yield();
    EXPECT_FALSE(has_open("worker.0/"));
    (void)finish();
  }
}

TEST_F(ElasticJobTest, TheStatusTellsWhoCameAndWhoWent) {
  start({"-np", "3", "--min-np", "2", "--status", "--status-interval", "60"});
  ::kill(wait_for(1, 1, 3), SIGKILL);
  wait_for(2, 1, 2);
  const std::string id = job_id(*job_);
  const auto status = run(hvdrun({"status", id}));
  EXPECT_THAT(status.out,
              testing::AllOf(HasSubstr("job " + id + ", 2 ranks"), HasSubstr("MiB"),
                             testing::ContainsRegex("worker 1 on localhost .pid [0-9]+, rank 1 of "
                                                    "generation 1. was killed by SIGKILL"),
                             HasSubstr("s: generation 2 has 2 ranks: workers 0, 2\n")))
      << status.err;
  EXPECT_THAT(status.out, testing::Not(HasSubstr("not joined")));
  (void)finish();
}

TEST_F(ElasticJobTest, HostsComeAndGo) {
  write("hosts", "localhost:2\n");
  start({"-np", "2", "--host-discovery-script", hosts_script()});
  wait_for(1, 1, 2);
  write("hosts", "localhost:2\n127.0.0.1:2\n");
  wait_for(0, 0, 4);
  wait_for(3, 3, 4);
  write("hosts", "127.0.0.1:2\n");
  wait_for(2, 0, 2);
  wait_for(3, 1, 2);
  EXPECT_THAT(finish().out, HasSubstr("worker 0 leaves"));
}

/// Its workers never wait, so no generation forms.
TEST_F(ElasticJobTest, AHostsCoresAreSharedByTheWorkersThatMayRunThere) {
  const auto start_with = [&](Words options) {
    options.insert(options.end(),
                   {"sh", "-c", "echo worker $HVD_WORKER has $OMP_NUM_THREADS; exec sleep 600"});
    test::ProcessOptions process = hvdrun(std::move(options));
    process.environment["OMP_NUM_THREADS"] = std::nullopt;
    launch(std::move(process));
  };
  const auto expect = [&](int worker, int sharers) {
    job_->wait_for_out(
        "worker " + std::to_string(worker) + " has " + std::to_string(omp_threads(sharers)) + "\n",
        test::in(kPatience));
  };
  start_with({"-np", "1", "--min-np", "1", "-H", "localhost:64"});
  expect(0, 1);
  job_.reset();
  write("hosts", "localhost:1\n");
  start_with({"-np", "1", "--host-discovery-script", hosts_script()});
  expect(0, 1);
  write("hosts", "localhost:8\n");
  expect(1, 8);
  expect(7, 8);
}

TEST_F(ElasticJobTest, AnAgentStartsThoughHvdrunHasBeenReplacedMeanwhile) {
  replace_ssh("for last; do :; done; exec sh -c \"$last\"");
  const auto program = directory_.path() / "hvdrun";
  std::filesystem::copy_file(HVDRUN, program);
  write("hosts", "localhost:1\n");
  auto process = hvdrun({"-np", "1", "--network-interfaces", "lo", "--host-discovery-script",
                         hosts_script(), ELASTIC_LOOP, directory_.path().string()});
  process.arguments.front() = program.string();
  launch(std::move(process));
  wait_for(0, 0, 1);
  std::filesystem::remove(program);
  std::filesystem::copy_file(HVDRUN, program);
  write("hosts", "localhost:1\nelsewhere:1\n");
  wait_for(1, 1, 2);
  (void)finish();
}

TEST_F(ElasticJobTest, TheOthersGoOnWhenTheDirectoryOfTheJobIsGone) {
  const auto gone = directory_.path() / "gone";
  std::filesystem::create_directory(gone);
  write("hosts", "localhost:1\n");
  auto process = hvdrun({"-np", "1", "--host-discovery-script", hosts_script(), ELASTIC_LOOP,
                         directory_.path().string()});
  process.directory = gone;
  launch(std::move(process));
  wait_for(0, 0, 1);
  std::filesystem::remove(gone);
  write("hosts", "localhost:1\n127.0.0.1:1\n");
  job_->wait_for_err("127.0.0.1: cannot change to ", test::in(kPatience));
  (void)finish();
}

/// Worker 0 finishes the program while worker 1 loads.
TEST_F(ElasticJobTest, AJobThatHasFinishedDoesNotWaitForAWorkerThatStarts) {
  write("hosts", "localhost:1\n");
  start({"-np", "1", "--host-discovery-script", hosts_script(), "sh", "-c",
         "test $HVD_WORKER = 0 || { echo loads; exec sleep 600; }; exec \"$0\" \"$1\""});
  wait_for(0, 0, 1);
  write("hosts", "localhost:2\n");
  job_->wait_for_out("[1]<stdout>:loads\n", test::in(kPatience));
  (void)finish();
}

TEST_F(ElasticJobTest, AWorkerMayStartAJobOfItsOwn) {
  job_.emplace(
      hvdrun({"-np", "1", "--min-np", "1", "sh", "-c",
              HVDRUN " -np 2 " TRAIN "; exec " ELASTIC_LOOP " " + directory_.path().string()}));
  job_->wait_for_out("rank 1 of 2 on ", test::in(kPatience));
  wait_for(0, 0, 1);
  (void)finish();
}

TEST_F(ElasticJobTest, AHostForWhichThereIsNoSshDoesNotEndTheJob) {
  std::filesystem::create_symlink("/bin/cat", directory_.path() / "cat");
  search_path_ = directory_.path().string();
  write("hosts", "localhost:1\n");
  start({"-np", "1", "--host-discovery-script", hosts_script()});
  wait_for(0, 0, 1);
  write("hosts", "localhost:1\nelsewhere:2\n");
  const std::string complaint = "cannot reach elsewhere: ";
  job_->wait_for_err(complaint, test::in(kPatience));
  const std::string said = finish().err;
  EXPECT_EQ(said.find(complaint), said.rfind(complaint)) << said;
}

TEST_F(ElasticJobTest, TheJobGrowsByOneAndByOne) {
  write("hosts", "localhost:1\n");
  start({"-np", "1", "--host-discovery-script", hosts_script()});
  const pid_t oldest = wait_for(0, 0, 1);
  write("hosts", "localhost:2\n");
  EXPECT_EQ(wait_for(0, 0, 2), oldest);
  const pid_t second = wait_for(1, 1, 2);
  write("hosts", "localhost:3\n");
  EXPECT_EQ(wait_for(0, 0, 3), oldest);
  EXPECT_EQ(wait_for(1, 1, 3), second);
  wait_for(2, 2, 3);
  (void)finish();
}

TEST_F(ElasticJobTest, TheJobWaitsForTheLeastRanks) {
  write("hosts", "localhost:1\n");
  start({"-np", "2", "--host-discovery-script", hosts_script(), "--verbose"});
  job_->wait_for_err("worker 0 on localhost", test::in(kPatience));
  write("hosts", "localhost:2\n");
  wait_for(0, 0, 2);
  wait_for(1, 1, 2);
  EXPECT_THAT(finish().err, testing::Not(HasSubstr("has 1 ranks")));
}

TEST_F(ElasticJobTest, WithoutAnyHostTheWorkersWaitForOne) {
  write("hosts", "localhost:2\n");
  start({"-np", "2", "--host-discovery-script", hosts_script()});
  const pid_t oldest = wait_for(0, 0, 2);
  write("hosts", "\n");
  job_->wait_for_err("the hosts are none", test::in(kPatience));
  write("hosts", "localhost:2\n");
  job_->wait_for_out("generation 2: worker 1 is rank 1 of 2", test::in(kPatience));
  job_->wait_for_out("generation 2: worker 0 is rank 0 of 2, pid " + std::to_string(oldest),
                     test::in(kPatience));
  (void)finish();
}

TEST_F(ElasticJobTest, AScriptThatFailsAtFirstEndsTheJob) {
  start({"-np", "2", "--host-discovery-script", "exit 3"});
  const auto result = wait();
  EXPECT_EQ(result.exit_code(), kExitUsage);
  EXPECT_EQ(result.err, "hvdrun: --host-discovery-script 'exit 3' exited 3\n");
}

TEST_F(ElasticJobTest, AScriptThatHangsAtFirstEndsTheJob) {
  start({"-np", "2", "--host-discovery-script", "sleep 600", "--start-timeout", "0.5"});
  const auto result = wait();
  EXPECT_EQ(result.exit_code(), kExitUsage);
  EXPECT_EQ(result.err, "hvdrun: --host-discovery-script 'sleep 600' did not end within 0.5 s\n");
}

TEST_F(ElasticJobTest, AScriptThatPrintsSomethingElseIsQuoted) {
  start({"-np", "2", "--host-discovery-script", "echo no such cluster"});
  const auto result = wait();
  EXPECT_EQ(result.exit_code(), kExitUsage);
  EXPECT_THAT(result.err, HasSubstr("'no such cluster'"));
}

TEST_F(ElasticJobTest, AScriptThatFailsLaterIsRetried) {
  write("hosts", "localhost:1\n");
  start({"-np", "1", "--host-discovery-script", hosts_script()});
  wait_for(0, 0, 1);
  std::filesystem::remove(directory_.path() / "hosts");
  job_->wait_for_err("exited 1; hvdrun tries again", test::in(kPatience));
  write("hosts", "no such cluster\n");
  job_->wait_for_err("'no such cluster': not a host name or address; hvdrun tries again",
                     test::in(kPatience));
  write("hosts", "localhost:2\n");
  wait_for(1, 1, 2);
  (void)finish();
}

TEST_F(ElasticJobTest, AStoppedWorkerIsKilled) {
  start({"-np", "3", "--min-np", "2"});
  ::kill(wait_for(1, 1, 3), SIGSTOP);
  wait_for(2, 1, 2);
  EXPECT_THAT(finish().err, HasSubstr("killing worker 1"));
}

TEST_F(ElasticJobTest, TheOthersGoOnWithoutALostAgent) {
  start({"-np", "3", "--min-np", "1", "-H", "localhost:2,127.0.0.1:1"});
  wait_for(2, 2, 3);
  ::kill(parent_of(wait_for(0, 0, 3)), SIGKILL);
  wait_for(2, 0, 1);
  // Nothing of the lost agent stays beside the other one, not even a process that nobody waits for.
  const Deadline deadline = test::in(kPatience);
  while (children() != 1 && Clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(children(), 1);
  EXPECT_THAT(finish().err, HasSubstr("the agent on localhost was killed by SIGKILL"));
}

/// The host is tried again after its cooldown, so the job ends when the agent is given up once
/// more. So may be the agent of this host where it is slow.
TEST_F(ElasticJobTest, AHostWhoseAgentDoesNotStartIsGivenUp) {
  replace_ssh("exec cat >/dev/null");
  start({"-np", "2", "--min-np", "1", "-H", "localhost:1,nosuch:1", "--start-timeout", "2",
         "--blacklist-cooldown-range", "0.1,1"});
  job_->wait_for_err("nosuch: its agent has not started within 2.0 s (--start-timeout)",
                     test::in(kPatience));
  job_->wait_for_out(" is rank 0 of 1,", test::in(kPatience));
  (void)finish();
}

TEST_F(ElasticJobTest, ASecondSignalEndsAnElasticJobAtOnce) {
  // The grace period is longer than the patience of the test, and the agent, which does not start,
  // does nothing that it is asked to do.
  replace_ssh("echo hangs >&2; exec cat >/dev/null");
  start({"-np", "1", "--min-np", "1", "-H", "nosuch:1", "--grace", "600", "--verbose"});
  job_->wait_for_err("nosuch: hangs", test::in(kPatience));
  job_->signal(SIGINT);
  job_->wait_for_err("received signal 2 (SIGINT)", test::in(kPatience));
  // The last of these signals come when the job is over and hvdrun about to exit.
  EXPECT_TRUE(signal_until_the_end(*job_, SIGINT, test::in(kPatience)));
  EXPECT_EQ(wait().exit_code(), kExitSignalBase + SIGINT);
}

TEST_F(ElasticJobTest, AWorkerThatIsAskedToStopLeaves) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    std::filesystem::remove(directory_.path() / "stop");
    start({"-np", "3", "--min-np", "1"});
    wait_for(2, 2, 3);
    ::kill(wait_for(0, 0, 3), signal);
    wait_for(1, 0, 2);
    wait_for(2, 1, 2);
    EXPECT_THAT(finish().err,
                testing::ContainsRegex("worker 0 on localhost .pid [0-9]+, rank 0 of generation 1. "
                                       "leaves, since it was asked to stop"));
  }
}

TEST_F(ElasticJobTest, AllRanksStopAfterTheSameStepWhenHvdrunIsAsked) {
  for (const int signal : {SIGUSR1, SIGTERM}) {
    start({"-np", "3", "--min-np", "1"});
    for (const int rank : {0, 1, 2}) wait_for(rank, rank, 3);
    job_->signal(signal);
    expect_same_step(signal);
  }
}

// A scheduler signals all of them at nearly the same time, in any order. The ranks take several
// steps meanwhile.
TEST_F(ElasticJobTest, ANoticeToAllAgentsAndHvdrunIsOneRequest) {
  for (const int signal : {SIGUSR1, SIGTERM}) {
    for (const bool hvdrun_is_last : {true, false}) {
      start({"-np", "3", "--min-np", "1", "-H", "localhost:1,127.0.0.1:2"});
      std::vector<pid_t> notified;
      for (const int rank : {0, 2}) notified.push_back(parent_of(wait_for(rank, rank, 3)));
      wait_for(1, 1, 3);
      ASSERT_NE(notified[0], notified[1]);
      notified.insert(hvdrun_is_last ? notified.end() : notified.begin(), job_->pid());
      for (const pid_t pid : notified) {
        ::kill(pid, signal);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      expect_same_step(signal);
    }
  }
}

// A user asks the job to stop while its last worker waits for another one.
TEST_F(ElasticJobTest, ASignalToAJobThatWaitsIsItsCode) {
  for (const int signal : {SIGUSR1, SIGTERM}) {
    start({"-np", "2", "--min-np", "2", "-x", "HVD_LOG=info"});
    const pid_t other = wait_for(1, 1, 2);
    ::kill(wait_for(0, 0, 2), SIGKILL);
    // The worker and hvdrun learn of the loss at different times.
    job_->wait_for_err("generation 1 has ended", test::in(kPatience));
    job_->wait_for_err("was killed by SIGKILL", test::in(kPatience));
    EXPECT_EQ(::kill(other, 0), 0);
    job_->signal(signal);
    EXPECT_EQ(wait().exit_code(), kExitSignalBase + signal) << job_->err();
  }
}

// Worker 1 makes no context, so that of worker 0 waits for it.
TEST_F(ElasticJobTest, ASignalToAJobThatStartsIsItsCode) {
  start({"-np", "2", "--min-np", "2", "sh", "-c",
         "test $HVD_WORKER = 1 && exec " ELASTIC_WORKER "; exec \"$0\" \"$1\""});
  job_->wait_for_out("generation 1: rank 1 of 2", test::in(kPatience));
  job_->signal(SIGUSR1);
  EXPECT_EQ(wait().exit_code(), kExitSignalBase + SIGUSR1) << job_->err();
}

// It is asked to stop while it trains, and loses a rank before the ranks have agreed on a step.
TEST_F(ElasticJobTest, ALossAfterASignalIsALoss) {
  start({"-np", "2", "--min-np", "2", "--status", "--status-interval", "60", "-x",
         "HVD_PEER_TIMEOUT_MS=60000"});
  wait_for(1, 1, 2);
  const pid_t lost = wait_for(0, 0, 2);
  ::kill(lost, SIGSTOP);
  job_->signal(SIGUSR1);
  const std::string id = job_id(*job_);
  const Deadline deadline = test::in(kPatience);
  while (run(hvdrun({"status", id})).out.find("passing on SIGUSR1") == std::string::npos) {
    ASSERT_LT(Clock::now(), deadline);
  }
  ::kill(lost, SIGKILL);
  EXPECT_EQ(wait().exit_code(), kExitRetry) << job_->err();
}

// The host of workers 1 and 2 is about to be taken away.
TEST_F(ElasticJobTest, AllWorkersOfAnAgentThatIsAskedToStopLeave) {
  start({"-np", "3", "--min-np", "1", "-H", "localhost:1,127.0.0.1:2"});
  wait_for(0, 0, 3);
  wait_for(1, 1, 3);
  ::kill(parent_of(wait_for(2, 2, 3)), SIGTERM);
  wait_for(0, 0, 1);
  const auto result = finish();
  EXPECT_THAT(result.out,
              testing::AllOf(HasSubstr("worker 1 leaves"), HasSubstr("worker 2 leaves")));
  EXPECT_THAT(result.err, testing::Not(HasSubstr("127.0.0.1 was killed")));
}

TEST_F(ElasticJobTest, AnAgentThatHasNewWorkersIsAskedToStopAgain) {
  write("hosts", "localhost:1\n127.0.0.1:1\n");
  start({"-np", "2", "--min-np", "1", "--host-discovery-script", hosts_script()});
  wait_for(0, 0, 2);
  const pid_t agent = parent_of(wait_for(1, 1, 2));
  ::kill(agent, SIGTERM);
  wait_for(0, 0, 1);
  write("hosts", "localhost:1\n");
  job_->wait_for_err("the hosts are localhost:1\n", test::in(kPatience));
  write("hosts", "localhost:1\n127.0.0.1:1\n");
  job_->wait_for_out("generation 3: worker 0 is rank 0 of 2", test::in(kPatience));
  EXPECT_EQ(parent_of(wait_for(2, 1, 2)), agent);
  ::kill(agent, SIGTERM);
  job_->wait_for_out("generation 4: worker 0 is rank 0 of 1", test::in(kPatience));
  EXPECT_THAT(finish().out, HasSubstr("worker 2 leaves"));
}

TEST_F(ElasticJobTest, ASignalEndsTheJob) {
  start({"-np", "2", "--min-np", "1"});
  wait_for(1, 1, 2);
  job_->signal(SIGINT);
  const auto result = wait();
  EXPECT_EQ(result.exit_code(), kExitSignalBase + SIGINT);
}

TEST_F(ElasticJobTest, TheTimeoutEndsTheJob) {
  start({"-np", "1", "--min-np", "1", "--timeout", "0.3"});
  EXPECT_EQ(wait().exit_code(), kExitDeadline);
}

}  // namespace
}  // namespace hvd::launcher
