// Runs benchmarks/compare as users do and checks what it measures, writes, computes and leaves
// behind.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>
#include <nlohmann/json.hpp>
#include <stdlib.h>
#include <unistd.h>

namespace hvd::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kUsage = 64;
constexpr int kUnavailable = 69;

class Compare : public testing::Test {
 protected:
  Compare() {
    std::string pattern = fs::temp_directory_path() / "hvd-compare-test-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp " + pattern);
    folder_ = pattern;
  }
  ~Compare() override { fs::remove_all(folder_); }

  void SetUp() override {
    if (run_program({"python3", "--version"}).exit_code() != 0) GTEST_SKIP() << "needs python3";
  }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ifstream file(path(name));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void write(const std::string& name, const json& rows) const {
    std::ofstream(path(name)) << rows.dump();
  }

  static std::vector<std::string> command(const std::vector<std::string>& arguments) {
    std::vector<std::string> all{"python3", COMPARE_SCRIPT};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
  static test::ProcessResult compare(const std::vector<std::string>& arguments) {
    return run_program(command(arguments));
  }
  static test::ProcessResult run_program(const std::vector<std::string>& arguments) {
    test::ProcessOptions options;
    options.arguments = arguments;
    return test::run_process(std::move(options), test::in(seconds(540)));
  }

 private:
  fs::path folder_;
};

json row_of(const std::string& who, int round, std::int64_t bytes, double p50_us,
            std::int64_t wrong = 0) {
  return {{"who", who},     {"link", "host"},     {"round", round},   {"op", "allreduce"},
          {"bytes", bytes}, {"count", bytes / 4}, {"dtype", "f32"},   {"redop", "sum"},
          {"backend", "x"}, {"ranks", 2},         {"p50_us", p50_us}, {"p99_us", 3 * p50_us},
          {"algbw_gbs", 1}, {"busbw_gbs", 1},     {"wrong", wrong}};
}

TEST_F(Compare, MeasuresEverybodyWhoIsThere) {
  const test::ProcessResult result =
      compare({"--build", BUILD_FOLDER, "--np", "2", "--sizes", "4", "64K", "16", "--rounds", "2",
               "--iters", "5", "--json", path("all.json"), "--plot", path("all.svg"), "--doc"});
  ASSERT_EQ(result.exit_code(), 0) << result.out << result.err;

  std::ifstream file(path("all.json"));
  const json rows = json::parse(file, nullptr, false);
  ASSERT_TRUE(rows.is_array());
  const std::set<std::string> keys{"who",    "link",   "round",     "op",        "bytes",
                                   "count",  "dtype",  "redop",     "backend",   "ranks",
                                   "p50_us", "p99_us", "algbw_gbs", "busbw_gbs", "wrong"};
  std::map<std::string, std::multiset<std::pair<int, std::int64_t>>> seen;
  for (const json& row : rows) {
    SCOPED_TRACE(row.dump());
    std::set<std::string> own;
    for (const auto& item : row.items()) own.insert(item.key());
    EXPECT_TRUE(std::includes(own.begin(), own.end(), keys.begin(), keys.end()));
    EXPECT_EQ(row.at("wrong"), 0);
    EXPECT_EQ(row.at("ranks"), 2);
    EXPECT_EQ(row.at("link"), "host");
    EXPECT_GT(row.at("p50_us"), 0);
    EXPECT_LE(row.at("p50_us"), row.at("p99_us"));
    seen[row.at("who")].emplace(row.at("round"), row.at("bytes"));
  }
  const std::multiset<std::pair<int, std::int64_t>> each{{0, 4}, {0, 64}, {0, 1024}, {0, 16384},
                                                         {1, 4}, {1, 64}, {1, 1024}, {1, 16384}};
  for (const auto& [who, measured] : seen) EXPECT_EQ(measured, each) << who;
  std::vector<std::string> there{"bound-arena", "bound-private", "hvd-arena", "hvd-private"};
  const bool has_mpi =
      std::string_view(HAS_MPI_BENCH) == "1" &&
      run_program({"mpirun", "--version"}).out.find("Open MPI") != std::string::npos;
  if (has_mpi) there.insert(there.end(), {"openmpi", "openmpi-tuned"});
  for (const std::string& who : there) EXPECT_EQ(seen.count(who), 1U) << who << ' ' << result.err;

  EXPECT_THAT(result.out, HasSubstr("| bytes | bound-arena | bound-private | hvd-"));
  EXPECT_THAT(result.out, HasSubstr("\n| 16 KiB | "));
  EXPECT_THAT(result.out, HasSubstr("cores of "));
  EXPECT_THAT(result.out, HasSubstr("Largest p99/p50 up to 1 MiB: bound-arena "));
  const std::string picture = text_of("all.svg");
  EXPECT_THAT(picture, StartsWith("<svg "));
  for (const auto& one : seen) EXPECT_THAT(picture, HasSubstr(">" + one.first + "</text>"));
}

TEST_F(Compare, TakesMediansSpreadsAndRatios) {
  json rows = json::array();
  const double private_us[] = {200, 100, 150};  // median 150
  const double arena_us[] = {50, 60, 70};
  const double bound_us[] = {120, 110, 500};  // median 120, 0.80 of the speed: 120 / 150
  const double peer_us[] = {310, 300, 290};   // 2.00 times hvd-private, 5.00 times hvd-arena
  for (int round = 0; round < 3; ++round) {
    rows.push_back(row_of("openmpi", round, 65536, peer_us[round]));
    rows.push_back(row_of("hvd-private", round, 65536, private_us[round]));
    rows.push_back(row_of("hvd-arena", round, 65536, arena_us[round]));
    rows.push_back(row_of("bound-private", round, 65536, bound_us[round]));
  }
  rows.push_back(row_of("openmpi", 0, 4, 0.5));
  write("rows.json", rows);
  const test::ProcessResult result = compare({"--from", path("rows.json")});
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out,
              StartsWith("| bytes | bound-private | hvd-arena | hvd-private | openmpi |\n"
                         "| ---: | ---: | ---: | ---: | ---: |\n"
                         "| 4 B | – | – | – | 0.50 |\n"
                         "| 64 KiB | 120 (110–500) | 60.0 (50.0–70.0) | 150 (100–200) **0.80** | "
                         "300 (290–310) **5.00× / 2.00×** |\n"));
  EXPECT_THAT(result.out, HasSubstr("hvd-private 3.0 at 64 KiB"));
}

TEST_F(Compare, AWrongResultIsSeenAndFails) {
  write("rows.json", json::array({row_of("hvd-private", 0, 64, 10), row_of("mpich", 0, 64, 20, 3),
                                  row_of("mpich", 1, 64, 20)}));
  const test::ProcessResult result = compare({"--from", path("rows.json")});
  EXPECT_EQ(result.exit_code(), 1);
  EXPECT_THAT(result.out, HasSubstr("(3 WRONG)"));
  EXPECT_THAT(result.err, HasSubstr("3 wrong elements from mpich"));
}

TEST_F(Compare, NamesWhoIsNotThere) {
  const test::ProcessResult result =
      compare({"--build", path("nothing"), "--python", path("nothing")});
  EXPECT_EQ(result.exit_code(), kUnavailable) << result.out << result.err;
  for (const std::string who :
       {"bound-arena", "bound-private", "hvd-arena", "hvd-private", "hvd-engine", "openmpi",
        "openmpi-tuned", "mpich", "oneccl", "gloo", "c10d", "horovod"}) {
    EXPECT_THAT(result.err, HasSubstr("compare: no " + who + ": "));
  }
}

TEST_F(Compare, RefusesAWrongCommandLine) {
  const std::vector<std::vector<std::string>> wrong{{"--sizes", "4", "x", "4"},
                                                    {"--sizes", "64", "4", "4"},
                                                    {"--np", "1"},
                                                    {"--rounds", "0"},
                                                    {"--hosts", "2", "--np", "3"}};
  for (const std::vector<std::string>& arguments : wrong) {
    EXPECT_EQ(compare(arguments).exit_code(), kUsage) << testing::PrintToString(arguments);
  }
}

// The bounds and most libraries are not bound to cores.
TEST_F(Compare, BindsItsRanksOnlyWhenAskedTo) {
  fs::create_directories(path("build/bin"));
  fs::create_symlink(BUILD_FOLDER "/bin/hvd_bench", path("build/bin/hvd_bench"));
  const std::string hvdrun = path("build/bin/hvdrun");
  std::ofstream(hvdrun) << "#!/bin/sh\necho \"$*\" >" << path("arguments") << "\nexec " BUILD_FOLDER
                        << "/bin/hvdrun \"$@\"\n";
  fs::permissions(hvdrun, fs::perms::owner_all);
  std::vector<std::string> arguments{"--build",  path("build"), "--only", "hvd-private", "--sizes",
                                     "4",        "4",           "2",      "--iters",     "3",
                                     "--rounds", "1",           "--doc"};
  const test::ProcessResult unbound = compare(arguments);
  EXPECT_EQ(unbound.exit_code(), 0) << unbound.err;
  EXPECT_THAT(text_of("arguments"), HasSubstr("--bind-to none"));
  EXPECT_THAT(unbound.out, HasSubstr("nobody bound to cores but by the MPI launchers."));
  arguments.push_back("--bind");
  EXPECT_EQ(compare(arguments).exit_code(), 0);
  EXPECT_THAT(text_of("arguments"), Not(HasSubstr("--bind-to")));
}

/// Returns how many processes have this text in their command line.
int count_processes(const std::string& text) {
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    std::ostringstream line;  // unlike iterators, it does not throw when the process ends meanwhile
    line << file.rdbuf();
    if (line.str().find(text) != std::string::npos) ++count;
  }
  return count;
}

TEST_F(Compare, EndsWhatItStarted) {
  const std::string place = path("tmp");  // its programs name this folder
  fs::create_directory(place);
  test::ProcessOptions options;
  options.arguments = command({"--build", BUILD_FOLDER, "--only", "hvd-private", "--sizes", "4M",
                               "4M", "2", "--seconds", "600"});
  options.environment = {{"TMPDIR", place}};
  test::Process process(std::move(options));
  process.wait_for_err("round 1 of 5: hvd-private", test::in(seconds(60)));
  const Deadline deadline = test::in(seconds(60));
  while (count_processes(place) < 3) {  // hvdrun and two ranks
    ASSERT_LT(Clock::now(), deadline);
    std::this_thread::yield();
  }
  process.signal(SIGTERM);
  const test::ProcessResult result = process.wait(test::in(seconds(60)));
  EXPECT_EQ(result.exit_code(), 128 + SIGTERM) << result.err;
  EXPECT_EQ(count_processes(place), 0);
  EXPECT_TRUE(fs::is_empty(place));
}

TEST_F(Compare, MeasuresBetweenTwoHosts) {
  const test::ProcessResult result =
      compare({"--build", BUILD_FOLDER, "--only",   "hvd-private,iperf3",
               "--hosts", "2",          "--np",     "4",
               "--rate",  "1gbit",      "--sizes",  "4",
               "64K",     "64",         "--rounds", "1",
               "--iters", "3",          "--json",   path("net.json")});
  if (result.exit_code() == kUnavailable) {
    GTEST_SKIP() << "needs root, iproute2 and network namespaces: " << result.err;
  }
  ASSERT_EQ(result.exit_code(), 0) << result.out << result.err;
  std::ifstream file(path("net.json"));
  const json rows = json::parse(file, nullptr, false);
  std::set<std::int64_t> sizes;
  for (const json& row : rows) {
    EXPECT_EQ(row.at("link"), "veth-1gbit");
    EXPECT_EQ(row.at("ranks"), 4);
    EXPECT_EQ(row.at("wrong"), 0) << row.dump();
    if (row.at("who") == "hvd-private") sizes.insert(row.at("bytes").get<std::int64_t>());
  }
  EXPECT_EQ(sizes, (std::set<std::int64_t>{4, 256, 16384}));
  EXPECT_THAT(run_program({"ip", "netns", "list"}).out,
              Not(HasSubstr("hvd-compare-" + std::to_string(::getpid()))));
}

}  // namespace
}  // namespace hvd::bench
