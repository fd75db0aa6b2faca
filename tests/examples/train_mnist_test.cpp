// Runs the example trainer on real images in every way that users start it.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <stdlib.h>

namespace hvd {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using test::ProcessOptions;
using test::ProcessResult;
using testing::HasSubstr;

constexpr seconds kPatience{240};

class TrainMnist : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists("/usr/share/datasets/fashion-mnist")) {
      GTEST_SKIP() << "needs Debian's dataset-fashion-mnist";
    }
    std::string pattern = fs::temp_directory_path() / "train_mnist_test.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

  [[nodiscard]] static ProcessOptions command(std::vector<std::string> launcher,
                                              const std::vector<std::string>& arguments) {
    ProcessOptions options;
    options.arguments = std::move(launcher);
    options.arguments.emplace_back(TRAIN_MNIST);
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    // There are many ranks on few cores, so each gets one thread, whatever launcher starts it.
    options.environment["OMP_NUM_THREADS"] = "1";
    return options;
  }
  [[nodiscard]] static std::vector<std::string> hvdrun(int ranks) {
    return {HVDRUN, "-np", std::to_string(ranks)};
  }

  /// Trains and returns the trainer's --json output.
  [[nodiscard]] nlohmann::json train(ProcessOptions options) const {
    options.arguments.insert(options.arguments.end(), {"--json", path("result.json")});
    const ProcessResult result = test::run_process(std::move(options), test::in(kPatience));
    EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
    std::ifstream file(path("result.json"));
    return nlohmann::json::parse(file, nullptr, false);
  }

  [[nodiscard]] std::vector<float> parameters(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    const std::string text = bytes.str();
    std::vector<float> values(text.size() / sizeof(float));
    std::memcpy(values.data(), text.data(), values.size() * sizeof(float));
    return values;
  }

 private:
  fs::path folder_;
};

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, static_cast<double>(std::fabs(a[i] - b[i])));
  }
  return largest;
}

// The same global batch gives the same training, whatever the number of processes.
TEST_F(TrainMnist, AnyNumberOfProcessesTrainsTheSameModel) {
  const std::vector<std::string> arguments{"--no-dropout", "--global-batch", "64", "--epochs", "1"};
  const auto run = [&](int ranks, const std::string& steps, const std::string& name) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), {"--steps", steps, "--save-parameters", path(name)});
    const nlohmann::json result = train(command(hvdrun(ranks), all));
    EXPECT_EQ(result.value("ranks", 0), ranks);
    EXPECT_TRUE(result.value("replicas_identical", false));
    EXPECT_TRUE(result.value("shards_disjoint", false));
    return parameters(name);
  };
  const std::vector<float> before = run(1, "0", "before");
  const std::vector<float> one = run(1, "20", "one");
  const std::vector<float> two = run(2, "20", "two");
  const std::vector<float> four = run(4, "20", "four");
  ASSERT_EQ(one.size(), 21840U);
  EXPECT_GE(largest_difference(before, one), 1e-3);
  EXPECT_LE(largest_difference(one, two), 1e-5);
  EXPECT_LE(largest_difference(one, four), 1e-5);
  // Two runs give the same bits.
  EXPECT_EQ(std::memcmp(two.data(), run(2, "20", "two again").data(), two.size() * 4), 0);
  EXPECT_EQ(std::memcmp(four.data(), run(4, "20", "four again").data(), four.size() * 4), 0);
}

class TrainMnistAt : public TrainMnist, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TrainMnistAt, testing::Values(2, 3));

TEST_P(TrainMnistAt, ReachesTheAccuracy) {
  const int ranks = GetParam();
  const nlohmann::json result = train(command(hvdrun(ranks), {"--plot", path("loss.svg")}));
  EXPECT_GE(result.value("test_accuracy", 0.0), 0.86);
  EXPECT_TRUE(result.value("replicas_identical", false));
  EXPECT_TRUE(result.value("shards_disjoint", false));
  EXPECT_EQ(result.value("ranks", 0), ranks);
  EXPECT_GE(result.value("images_seen", 0), 3 * 60'000);
  EXPECT_GT(result.value("images_per_s", 0.0), 0.0);
  EXPECT_GT(result.value("fused_tensors", 0), result.value("steps", 0)) << "nothing was fused";
  EXPECT_EQ(result.value("control_messages_per_step", -1), 0) << "the schedule was not frozen";
  EXPECT_GT(fs::file_size(path("loss.svg")), 1000U);
}

TEST_F(TrainMnist, WithoutCommunicationTheReplicasDiffer) {
  const nlohmann::json result =
      train(command(hvdrun(2), {"--no-sync", "--steps", "5", "--limit", "1000"}));
  EXPECT_FALSE(result.value("replicas_identical", true));
}

TEST_F(TrainMnist, ShardsArePaddedToEqualSize) {
  const nlohmann::json result =
      train(command(hvdrun(3), {"--limit", "1000", "--epochs", "2", "--batch-size", "50"}));
  EXPECT_EQ(result.value("images_seen", 0), 2 * 3 * 334);
  EXPECT_EQ(result.value("steps", 0), 2 * 7);
  EXPECT_TRUE(result.value("shards_disjoint", false));
}

TEST_F(TrainMnist, RunsAlone) {
  const nlohmann::json result = train(command({}, {"--steps", "5", "--limit", "1000"}));
  EXPECT_EQ(result.value("ranks", 0), 1);
  EXPECT_TRUE(result.value("replicas_identical", false));
}

class TrainMnistUnderMpirun : public TrainMnist {
 protected:
  void SetUp() override {
    TrainMnist::SetUp();
    ProcessOptions version;
    version.arguments = {"sh", "-c", "command -v mpirun"};
    if (test::run_process(std::move(version), test::in(seconds(30))).exit_code() != 0) {
      GTEST_SKIP() << "needs mpirun";
    }
  }
  [[nodiscard]] static ProcessOptions mpirun(int ranks, const std::vector<std::string>& arguments) {
    ProcessOptions options =
        command({"mpirun", "--oversubscribe", "-np", std::to_string(ranks)}, arguments);
    options.environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
    options.environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
    return options;
  }
};

TEST_F(TrainMnistUnderMpirun, RunsWithNothingSet) {
  const nlohmann::json result = train(mpirun(2, {"--steps", "20", "--limit", "4000"}));
  EXPECT_EQ(result.value("ranks", 0), 2);
  EXPECT_TRUE(result.value("replicas_identical", false));
}

TEST_F(TrainMnistUnderMpirun, TheMpiBackendMovesTheGradients) {
  if (std::string_view(PMPI_COUNTER).empty()) GTEST_SKIP() << "needs a build with MPI";
  ProcessOptions options = mpirun(2, {"--steps", "20", "--limit", "4000"});
  options.environment["HVD_BACKEND"] = "mpi";
  options.environment["LD_PRELOAD"] = PMPI_COUNTER;
  options.environment["HVD_TEST_PMPI_JSON"] = path("mpi");
  const nlohmann::json result = train(std::move(options));
  EXPECT_TRUE(result.value("replicas_identical", false));
  // Rank 0's calls: twenty steps of 21,840 gradients of four bytes, MPI's way or in pieces, and the
  // parameters at the start.
  std::ifstream file(path("mpi.0"));
  const nlohmann::json counted = nlohmann::json::parse(file, nullptr, false);
  ASSERT_FALSE(counted.is_discarded());
  const auto bytes = counted["MPI_Iallreduce"].value("odd_bytes", std::uint64_t{0}) +
                     counted["MPI_Isend"].value("odd_bytes", std::uint64_t{0});
  EXPECT_GE(bytes, 20U * 21'840U * 4U);
  EXPECT_LE(bytes, 23U * 21'840U * 4U);
}

TEST_F(TrainMnist, AKilledRankEndsTheJobAndIsNamed) {
  test::Lifeline lifeline;
  ProcessOptions options =
      command(hvdrun(3), {"--epochs", "1000", "--limit", "6000", "--batch-size", "16"});
  options.inherited.push_back(lifeline.fd());
  test::Process job(std::move(options));
  job.wait_for_out("epoch 1/1000", test::in(kPatience));  // in the middle of training

  // The ranks are grandchildren of hvdrun. The environment of a process says which one is rank 1.
  pid_t victim = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream environment(entry.path() / "environ", std::ios::binary);
    std::stringstream all;
    all << environment.rdbuf();
    std::error_code ignored;
    const fs::path program = fs::read_symlink(entry.path() / "exe", ignored);
    if (program == TRAIN_MNIST &&
        all.str().find(std::string("\0HVD_RANK=1\0", 12)) != std::string::npos) {
      victim = static_cast<pid_t>(std::stol(name));
    }
  }
  ASSERT_NE(victim, 0);
  const auto killed_at = Clock::now();
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  const ProcessResult result = job.wait(test::in(seconds(20)));
  const auto took = Clock::now() - killed_at;
  EXPECT_EQ(result.exit_code(), 137) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 1"));
  EXPECT_THAT(result.err, HasSubstr("SIGKILL"));
  EXPECT_TRUE(lifeline.all_gone(test::in(seconds(10)))) << "a process of the job is left";
  RecordProperty(
      "milliseconds_from_kill_to_exit",
      std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  EXPECT_FALSE(fs::exists("/dev/shm/hvd")) << "shared memory is left";
}

TEST_F(TrainMnist, BadArgumentsAreNamed) {
  ProcessOptions options = command(hvdrun(2), {"--frobnicate"});
  const ProcessResult result = test::run_process(std::move(options), test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 64);
  EXPECT_THAT(result.out + result.err, HasSubstr("--frobnicate"));
}

}  // namespace
}  // namespace hvd
