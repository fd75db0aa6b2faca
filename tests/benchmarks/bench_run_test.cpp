// Runs hvd_bench, its peers and the script that compares them as users do.
#include <filesystem>
#include <fstream>
#include <map>
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

class BenchRun : public testing::Test {
 protected:
  BenchRun() {
    std::string pattern = fs::temp_directory_path() / "hvd-bench-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
    folder_ = pattern;
  }
  ~BenchRun() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

  /// Runs hvd_bench with `--json` and returns the rows.
  [[nodiscard]] json rows_of(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--json", path("rows.json")});
    run(std::move(arguments));
    std::ifstream file(path("rows.json"));
    return json::parse(file, nullptr, false);
  }
  static test::ProcessResult run(std::vector<std::string> arguments) {
    test::ProcessOptions options;
    options.arguments = std::move(arguments);
    options.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                           {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                           {"OMPI_MCA_mpi_yield_when_idle", "1"}};
    test::ProcessResult result = test::run_process(std::move(options), test::in(kPatience));
    EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
    return result;
  }
  [[nodiscard]] static bool there_is(const std::string& program) {
    test::ProcessOptions options;
    options.arguments = {"sh", "-c", "command -v " + program};
    return test::run_process(std::move(options), test::in(seconds(30))).exit_code() == 0;
  }

 private:
  fs::path folder_;
};

std::vector<std::string> hvd_bench(int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> all{HVDRUN, "-np", std::to_string(ranks), HVD_BENCH};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

std::set<std::string> keys_of(const json& row) {
  std::set<std::string> keys;
  for (const auto& item : row.items()) keys.insert(item.key());
  return keys;
}

// Checks the data of each case in one step: ResNet-50 has 161 gradients with 25,557,032 elements.
void expect_cases(const json& rows, std::size_t rows_a_case) {
  const std::map<std::string, std::pair<int, std::size_t>> sizes{
      {"blocking", {1, 4}},
      {"many small", {161, 161U * 1024U}},
      {"resnet50", {161, 4U * 25'557'032U}},
      {"one tensor", {1, 4U * 25'557'032U}},
  };
  std::multiset<std::string> seen;
  for (const json& row : rows) {
    const std::string name = row.at("case");
    ASSERT_TRUE(sizes.count(name) == 1) << name;
    seen.insert(name);
    EXPECT_EQ(row.at("ranks"), 2);
    EXPECT_EQ(row.at("tensors"), sizes.at(name).first) << name;
    EXPECT_EQ(row.at("bytes"), sizes.at(name).second) << name;
    EXPECT_GT(row.at("p50_us"), 0) << name;
    EXPECT_LE(row.at("p50_us"), row.at("p99_us")) << name;
  }
  for (const auto& size : sizes) EXPECT_GE(seen.count(size.first), rows_a_case) << size.first;
}

TEST_F(BenchRun, NegotiationCostsNoMessageOnceFrozen) {
  const json rows = rows_of(hvd_bench(2, {"negotiation", "--iters", "20"}));
  ASSERT_EQ(rows.size(), 8U) << rows.dump(2);
  expect_cases(rows, 2);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const json& row = rows[i];
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(keys_of(row),
              (std::set<std::string>{"case", "ranks", "tensors", "bytes", "frozen", "p50_us",
                                     "p99_us", "control_messages_per_step"}));
    const bool frozen = i % 2 == 0;  // each case twice
    EXPECT_EQ(row.at("frozen"), frozen);
    const double messages = row.at("control_messages_per_step");
    if (frozen) {
      EXPECT_EQ(messages, 0);
    } else {
      EXPECT_GT(messages, 0);
    }
  }
}

class BenchRunAt : public BenchRun, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, BenchRunAt, testing::Values(2, 3));

TEST_P(BenchRunAt, ReducescatterAndAlltoallAreRight) {
  for (const std::string collective : {"reducescatter", "alltoall", "sendrecv"}) {
    SCOPED_TRACE(collective);
    const json rows = rows_of(hvd_bench(
        GetParam(), {collective, "-b", "4", "-e", "1M", "-f", "64", "--iters", "3", "--check"}));
    ASSERT_EQ(rows.size(), 4U) << rows.dump(2);
    for (const json& row : rows) {
      EXPECT_EQ(row.at("op"), collective);
      EXPECT_EQ(row.at("ranks"), GetParam());
      EXPECT_EQ(row.at("wrong"), 0) << row.dump();
    }
  }
}

TEST_P(BenchRunAt, EveryOperationOnTheArenaIsRight) {
  for (const std::string collective :
       {"broadcast", "allgather", "reducescatter", "alltoall", "sendrecv"}) {
    SCOPED_TRACE(collective);
    const json rows = rows_of(hvd_bench(GetParam(), {collective, "--arena", "-b", "64", "-e", "1M",
                                                     "-f", "128", "--iters", "3", "--check"}));
    ASSERT_EQ(rows.size(), 3U) << rows.dump(2);
    for (const json& row : rows) {
      EXPECT_EQ(row.at("op"), collective);
      EXPECT_EQ(row.at("wrong"), 0) << row.dump();
    }
  }
}

TEST_P(BenchRunAt, TheEngineAloneIsRight) {
  for (const std::string memory : {"--private", "--arena"}) {
    const json rows = rows_of(hvd_bench(
        GetParam(), {"allreduce", "--engine", memory, "-e", "1M", "-f", "64", "--iters", "20"}));
    ASSERT_EQ(rows.size(), 4U) << rows.dump(2);
    for (const json& row : rows) {
      EXPECT_EQ(row.at("wrong"), 0) << row.dump();
      EXPECT_GT(row.at("p50_us"), 0) << row.dump();
    }
  }
}

TEST_F(BenchRun, WithoutAGpuItSaysSo) {
  test::ProcessOptions options;
  options.arguments = {HVD_BENCH, "allreduce", "--device", "cuda", "-e", "4"};
  const test::ProcessResult result = test::run_process(std::move(options), test::in(kPatience));
  if (result.exit_code() == 0) return;  // there is one
  EXPECT_EQ(result.exit_code(), 1);
  EXPECT_THAT(result.err, HasSubstr("hvd_bench: --device cuda: "));
}

TEST_F(BenchRun, TheMpiPeerMeasuresTheSameCases) {
  if (std::string_view(MPI_PEER).empty()) GTEST_SKIP() << "needs a build with MPI";
  if (!there_is("mpirun")) GTEST_SKIP() << "needs mpirun";
  const json rows = rows_of({"mpirun", "--oversubscribe", "-np", "2", MPI_PEER, "--iters", "3"});
  ASSERT_EQ(rows.size(), 6U) << rows.dump(2);
  expect_cases(rows, 1);
  for (const json& row : rows) {
    EXPECT_EQ(keys_of(row), (std::set<std::string>{"case", "ranks", "tensors", "bytes", "fused",
                                                   "p50_us", "p99_us"}));
  }
}

TEST_F(BenchRun, TheScriptComparesWhatIsThere) {
  if (!there_is("python3")) GTEST_SKIP() << "needs python3";
  const test::ProcessResult result =
      run({"python3", NEGOTIATION_SCRIPT, "--build", BUILD_FOLDER, "--rounds", "1", "--iters", "3",
           "--json", path("all.json")});
  EXPECT_THAT(result.out, HasSubstr("| case | library | p50 µs (spread) |"));
  EXPECT_THAT(result.out, HasSubstr("| blocking | hvd, frozen | "));
  EXPECT_THAT(result.out, HasSubstr("| one tensor | hvd, negotiated | "));
  std::ifstream file(path("all.json"));
  const json rows = json::parse(file, nullptr, false);
  ASSERT_TRUE(rows.is_array());
  std::map<std::string, int> rows_by_who;
  for (const json& row : rows) {
    EXPECT_EQ(row.at("round"), 0);
    ++rows_by_who[row.at("who").get<std::string>()];
  }
  EXPECT_EQ(rows_by_who["hvd, frozen"] + rows_by_who["hvd, negotiated"], 8);
}

}  // namespace
}  // namespace hvd::bench
