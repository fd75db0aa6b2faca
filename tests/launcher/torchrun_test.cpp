// Starts programs of the library with torchrun, without setting any variable.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "directory.hpp"
#include "free_port.hpp"
#include "hvdrun.hpp"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// torchrun first imports PyTorch, which takes seconds on a busy machine.
constexpr std::chrono::seconds kTorchPatience{120};

/// TORCHRUN is the path that CMake found or -DHVD_TORCHRUN= names.
std::string torchrun_path() {
  const char* const named = std::getenv("HVD_TORCHRUN");
  return named != nullptr ? named : TORCHRUN;
}

/// Returns a name of this machine that other machines could use.
std::string test_host() {
  std::ifstream name("/proc/sys/kernel/hostname");
  std::string host;
  name >> host;
  return host;
}

class TorchrunTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(torchrun_path())) GTEST_SKIP() << "needs torchrun, named in HVD_TORCHRUN";
  }

  test::ProcessOptions torchrun(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {torchrun_path(), "--no-python"});
    test::ProcessOptions options;
    options.arguments = std::move(arguments);
    options.environment = {{"OMP_NUM_THREADS", "1"}, {"HVD_SECRET_FILE", std::nullopt}};
    return options;
  }

  /// Starts a node with two ranks. They find each other although `--master-addr` is not a loopback
  /// address.
  test::ProcessOptions node(int rank, int port, const std::string& program) const {
    return torchrun({"--nnodes", "2", "--node-rank", std::to_string(rank), "--nproc-per-node", "1",
                     "--master-addr", test_host(), "--master-port", std::to_string(port), program});
  }
};

test::ProcessResult wait(test::Process& process) { return process.wait(test::in(kTorchPatience)); }

TEST_F(TorchrunTest, RanksFindEachOtherAlsoAfterARestart) {
  // In the first attempt rank 1 dies while rank 0 waits for it.
  test::Process job(
      torchrun({"--standalone", "--nproc-per-node", "2", "--max-restarts", "1", "sh", "-c",
                "test $TORCHELASTIC_RESTART_COUNT$RANK = 01 && exit 3; exec " TRAIN}));
  const auto result = wait(job);
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0 of 2 on "), HasSubstr("rank 1 of 2 on ")));
  EXPECT_THAT(result.out, HasSubstr("local 1/2 cross 0/1 sum 1 ready\n"));
}

TEST_F(TorchrunTest, AnElasticProgramIsStartedAgainAsAWhole) {
  const Directory directory;
  std::ofstream{directory.path() / "die_in_collective.1"};
  test::Process job(
      torchrun({"--standalone", "--nproc-per-node", "2", "--max-restarts", "1", "sh", "-c",
                R"(test $TORCHELASTIC_RESTART_COUNT = 1 && touch "$0/stop"; )"
                "exec " ELASTIC_LOOP " \"$0\"",
                directory.path().string()}));
  const auto result = wait(job);
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("worker 0 has finished"), HasSubstr("worker 1 has finished")));
}

TEST_F(TorchrunTest, TwoJobsBesideEachOtherDoNotMix) {
  // One job has a static rendezvous, in which all jobs have the name "none"; the other uses c10d.
  test::Process first(torchrun({"--nproc-per-node", "2", "--master-addr", "127.0.0.1",
                                "--master-port", std::to_string(free_port()), TRAIN}));
  test::Process second(torchrun({"--nproc-per-node", "3", "--rdzv-backend", "c10d",
                                 "--rdzv-endpoint", "localhost:0", TRAIN}));
  const auto two = wait(first);
  const auto three = wait(second);
  EXPECT_EQ(two.exit_code(), 0) << two.err;
  EXPECT_EQ(three.exit_code(), 0) << three.err;
  EXPECT_THAT(two.out, AllOf(HasSubstr("rank 1 of 2 on "), HasSubstr("sum 1 ready")));
  EXPECT_THAT(three.out, AllOf(HasSubstr("rank 2 of 3 on "), HasSubstr("sum 3 ready")));
}

TEST_F(TorchrunTest, AnErrorIsInTorchrunsReport) {
  auto options = torchrun({"--standalone", "--nproc-per-node", "2", "sh", "-c",
                           "test $RANK = 1 && exec sleep 600; exec " TRAIN});
  options.environment["HVD_START_TIMEOUT"] = "1";
  test::Process job(std::move(options));
  const auto result = wait(job);
  EXPECT_EQ(result.exit_code(), 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("hvd::Error: "), HasSubstr("exitcode  : 3")));
}

TEST_F(TorchrunTest, TwoNodesMeetInTheAgentsStore) {
  if (!fs::exists(TORCH_TRAIN)) GTEST_SKIP() << "needs LibTorch";
  const int port = free_port();
  test::Process first(node(0, port, TORCH_TRAIN));
  test::Process second(node(1, port, TORCH_TRAIN));
  const auto one = wait(first);
  const auto other = wait(second);
  EXPECT_EQ(one.exit_code(), 0) << one.err;
  EXPECT_EQ(other.exit_code(), 0) << other.err;
  EXPECT_THAT(one.out, HasSubstr("rank 0 of 2 sum 1 ready\n"));
  EXPECT_THAT(other.out, HasSubstr("rank 1 of 2 sum 1 ready\n"));
  EXPECT_THAT(one.err, HasSubstr("the job's secret goes through torchrun's store"));
  EXPECT_THAT(other.err, Not(HasSubstr("the job's secret goes through")));
}

// These tests set torchrun's variables themselves, so they are fast and do not need PyTorch.

class TorchVariablesTest : public testing::Test {
 protected:
  static test::ProcessOptions rank(int rank, int size, int port, const std::string& host) {
    test::ProcessOptions options;
    options.arguments = {TRAIN};
    options.environment = {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", std::to_string(size)},
                           {"MASTER_ADDR", host},
                           {"MASTER_PORT", std::to_string(port)},
                           {"HVD_START_TIMEOUT", "20"}};
    return options;
  }
  void write_secret() {
    std::ofstream(secret_) << std::string(32, 's');
    fs::permissions(secret_, fs::perms::owner_read | fs::perms::owner_write);
  }

  Directory directory_;
  fs::path secret_ = directory_.path() / "secret";
};

TEST_F(TorchVariablesTest, OneHostNeedsNeitherPortNorSecret) {
  // Two jobs differ only by their port, on which no process listens.
  const int port = free_port();
  test::Process second(rank(1, 2, port, "localhost"));
  test::Process first(rank(0, 2, port, "localhost"));
  test::Process other_second(rank(1, 2, port + 1, "localhost"));
  test::Process other_first(rank(0, 2, port + 1, "localhost"));
  for (test::Process* process : {&first, &second, &other_first, &other_second}) {
    const auto result = process->wait(test::in(kPatience));
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("sum 1 ready"));
  }
}

/// torchrun starts all processes again when one has failed.
TEST_F(TorchVariablesTest, AnElasticProgramIsStartedAgainAsAWhole) {
  std::ofstream{directory_.path() / "die_in_collective.1"};
  const int port = free_port();
  for (const int attempt : {0, 1}) {
    std::vector<std::unique_ptr<test::Process>> ranks;
    for (const int number : {0, 1}) {
      auto options = rank(number, 2, port, "localhost");
      options.arguments = {ELASTIC_LOOP, directory_.path().string()};
      options.environment["TORCHELASTIC_RESTART_COUNT"] = std::to_string(attempt);
      ranks.push_back(std::make_unique<test::Process>(std::move(options)));
    }
    if (attempt == 1) std::ofstream{directory_.path() / "stop"};
    const auto first = ranks[0]->wait(test::in(kPatience));
    const auto second = ranks[1]->wait(test::in(kPatience));
    if (attempt == 0) {
      EXPECT_THAT(first.err, AllOf(HasSubstr("worker threw: "), HasSubstr("rank 1")));
      EXPECT_EQ(first.exit_code(), 4);
      EXPECT_EQ(second.signal(), SIGKILL);
      continue;
    }
    EXPECT_EQ(first.exit_code(), 0) << first.err;
    EXPECT_EQ(second.exit_code(), 0) << second.err;
    EXPECT_THAT(first.out, HasSubstr("generation 0: worker 0 is rank 0 of 2, "));
  }
}

TEST_F(TorchVariablesTest, SeveralHostsWithoutASecretAreAnError) {
  auto options = rank(0, 4, 29500, "node-a.invalid");
  options.environment["LOCAL_RANK"] = "0";
  options.environment["LOCAL_WORLD_SIZE"] = "2";
  const auto result = run(std::move(options));
  EXPECT_EQ(result.exit_code(), 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("HVD_SECRET_FILE"), HasSubstr("HVD_INSECURE")));
}

TEST_F(TorchVariablesTest, UnderAnAgentOnSeveralHostsAProgramWithoutLibTorchIsToldWhatToDo) {
  auto options = rank(1, 4, 29500, "node-a.invalid");
  options.environment["LOCAL_RANK"] = "1";
  options.environment["LOCAL_WORLD_SIZE"] = "2";
  options.environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  const auto result = run(std::move(options));
  EXPECT_EQ(result.exit_code(), 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("include <hvd/torch.hpp>"), HasSubstr("HVD_RENDEZVOUS")));
}

TEST_F(TorchVariablesTest, SeveralHostsMeetAtTheMastersPort) {
  write_secret();
  const int port = free_port();
  std::vector<std::unique_ptr<test::Process>> ranks;
  for (int r : {1, 0, 2}) {
    auto options = rank(r, 3, port, test_host());
    options.environment["LOCAL_RANK"] = "0";
    options.environment["LOCAL_WORLD_SIZE"] = "1";
    options.environment["HVD_SECRET_FILE"] = secret_.string();
    ranks.push_back(std::make_unique<test::Process>(std::move(options)));
  }
  for (const auto& process : ranks) {
    const auto result = process->wait(test::in(kPatience));
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("sum 3 ready"));
  }
}

TEST_F(TorchVariablesTest, ARankWithAnotherSecretIsRefused) {
  write_secret();
  const fs::path wrong = directory_.path() / "wrong";
  std::ofstream(wrong) << std::string(32, 'w');
  fs::permissions(wrong, fs::perms::owner_read | fs::perms::owner_write);
  const int port = free_port();
  auto right = rank(0, 2, port, test_host());
  right.environment["HVD_SECRET_FILE"] = secret_.string();
  right.environment["HVD_START_TIMEOUT"] = "3";
  auto intruder = rank(1, 2, port, test_host());
  intruder.environment["HVD_SECRET_FILE"] = wrong.string();
  test::Process first(std::move(right));
  const auto result = run(std::move(intruder));
  EXPECT_EQ(result.exit_code(), 3);
  EXPECT_THAT(result.err, HasSubstr("does not hold the secret"));
  EXPECT_EQ(first.wait(test::in(kPatience)).exit_code(), 3);
}

TEST_F(TorchVariablesTest, InsecureIsLoudAndWorks) {
  const int port = free_port();
  std::vector<std::unique_ptr<test::Process>> ranks;
  for (int r : {0, 1}) {
    auto options = rank(r, 2, port, test_host());
    options.environment["LOCAL_RANK"] = "0";
    options.environment["LOCAL_WORLD_SIZE"] = "1";
    options.environment["HVD_INSECURE"] = "1";
    options.environment["HVD_LOG"] = "error";
    ranks.push_back(std::make_unique<test::Process>(std::move(options)));
  }
  const auto first = ranks[0]->wait(test::in(kPatience));
  const auto second = ranks[1]->wait(test::in(kPatience));
  EXPECT_EQ(first.exit_code(), 0) << first.err;
  EXPECT_EQ(second.exit_code(), 0) << second.err;
  EXPECT_THAT(first.err, HasSubstr("HVD_INSECURE=1: whoever reaches this job"));
  EXPECT_EQ(second.err, "");
}

TEST_F(TorchVariablesTest, TheFirstErrorIsInTheErrorFile) {
  auto options = rank(0, 2, free_port(), "localhost");
  const fs::path file = directory_.path() / "error.json";
  options.environment["TORCHELASTIC_ERROR_FILE"] = file.string();
  options.environment["HVD_START_TIMEOUT"] = "0.2";
  EXPECT_EQ(run(std::move(options)).exit_code(), 3);
  EXPECT_THAT(directory_.read("error.json"),
              AllOf(testing::StartsWith(R"({"message":{"message":"hvd::Error: )"),
                    HasSubstr(R"(,"extraInfo":{"py_callstack":"hvd::Error: )"),
                    testing::ContainsRegex(R"re("timestamp":"[0-9]+"}}}$)re")));
}

}  // namespace
}  // namespace hvd::launcher
