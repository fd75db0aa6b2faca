// Runs train_bench and the script around it as users do.
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>
#include <nlohmann/json.hpp>
#include <stdlib.h>

namespace hvd::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr seconds kPatience{240};

class TrainBench : public testing::Test {
 protected:
  TrainBench() {
    std::string pattern = fs::temp_directory_path() / "hvd-train-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
    folder_ = pattern;
  }
  ~TrainBench() override { fs::remove_all(folder_); }

  static test::ProcessResult run(std::vector<std::string> arguments) {
    test::ProcessOptions options;
    options.arguments = std::move(arguments);
    return test::run_process(std::move(options), test::in(kPatience));
  }
  /// Returns the row of one run.
  [[nodiscard]] json row_of(int ranks, std::vector<std::string> arguments) const {
    const std::string rows = folder_ / "rows.json";
    std::vector<std::string> all{HVDRUN, "-np", std::to_string(ranks), TRAIN_BENCH};
    all.insert(all.end(), arguments.begin(), arguments.end());
    all.insert(all.end(), {"--json", rows});
    const test::ProcessResult result = run(std::move(all));
    EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
    std::ifstream file(rows);
    const json read = json::parse(file, nullptr, false);
    EXPECT_EQ(read.size(), 1U) << read.dump();
    return read.at(0);
  }

 private:
  fs::path folder_;
};

TEST_F(TrainBench, TheRowSaysWhatTrainingCost) {
  const json row = row_of(2, {"--model", "cnn", "--batch", "4", "--steps", "10"});
  std::set<std::string> keys;
  for (const auto& item : row.items()) keys.insert(item.key());
  EXPECT_EQ(keys, (std::set<std::string>{"model", "mode", "device", "ranks", "images_per_s",
                                         "step_ms_p50", "backward_ms", "exposed_comm_ms", "comm_ms",
                                         "gradient_copies", "rss_mb", "pss_mb", "arena_mb",
                                         "page_faults", "steps"}));
  EXPECT_EQ(row.at("model"), "cnn");
  EXPECT_EQ(row.at("mode"), "hvd");
  EXPECT_EQ(row.at("ranks"), 2);
  EXPECT_EQ(row.at("steps"), 10);
  EXPECT_GT(row.at("images_per_s"), 0);
  EXPECT_GT(row.at("backward_ms"), 0);
  EXPECT_GT(row.at("comm_ms"), 0);
  EXPECT_GT(row.at("rss_mb"), 10);
}

// Gradients are allocated in the arena, which makes their reduction fast.
TEST_F(TrainBench, NoGradientIsCopied) {
  for (const char* model : {"cnn", "mlp25m", "resnet18"}) {
    const json row = row_of(2, {"--model", model, "--batch", "2", "--steps", "2"});
    EXPECT_EQ(row.at("gradient_copies"), 0) << model;
  }
  const json copied =
      row_of(2, {"--model", "cnn", "--batch", "2", "--steps", "2", "--memory", "copied"});
  EXPECT_EQ(copied.at("gradient_copies"), 8) << "the counter counts";
}

// The gradients need one buffer of their size, and at most half of one more.
TEST_F(TrainBench, ReducingGradientsTakesNoSecondBuffer) {
  const auto memory_of = [&](const char* mode) {
    return row_of(2, {"--model", "mlp25m", "--batch", "2", "--steps", "2", "--mode", mode});
  };
  const json hvd = memory_of("hvd");
  const json independent = memory_of("independent");
  const double gradients = 4 * 25e6 / 1e6;
  EXPECT_GT(hvd.at("arena_mb"), 0.9 * gradients);
  EXPECT_LT(hvd.at("pss_mb").get<double>(), independent.at("pss_mb").get<double>() + gradients / 2);
}

TEST_F(TrainBench, TheIdealsDoNotReduceGradients) {
  for (const char* mode : {"independent", "lockstep"}) {
    const json row = row_of(2, {"--model", "cnn", "--batch", "2", "--steps", "5", "--mode", mode});
    EXPECT_EQ(row.at("mode"), mode);
    EXPECT_EQ(row.at("gradient_copies"), 0);
  }
}

TEST_F(TrainBench, TrainsWithShards) {
  const json row = row_of(2, {"--model", "convnet", "--batch", "2", "--steps", "2", "--mode",
                              "exact", "--shards", "3"});
  EXPECT_EQ(row.at("mode"), "exact");
}

TEST_F(TrainBench, AWrongCommandLineIsAUsageError) {
  const test::ProcessResult result = run({TRAIN_BENCH, "--model", "alexnet"});
  EXPECT_EQ(result.exit_code(), 64);
  EXPECT_THAT(result.err + result.out, HasSubstr("alexnet"));
}

TEST_F(TrainBench, TheScriptComparesWithTheIdeals) {
  const test::ProcessResult result =
      run({TRAINING_SCRIPT, "--build", BUILD_FOLDER, "--rounds", "1", "--seconds", "0.05",
           "--models", "cnn", "--modes", "independent,lockstep,hvd,hvd-every-1"});
  ASSERT_EQ(result.exit_code(), 0) << result.out << result.err;
  for (const char* mode : {"independent", "lockstep", "hvd", "hvd-every-1"}) {
    EXPECT_THAT(result.out, HasSubstr(std::string("| cnn | ") + mode + " |"));
  }
}

}  // namespace
}  // namespace hvd::bench
