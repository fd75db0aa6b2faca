// Tests the hand-written bounds of benchmarks/compare: every algorithm is right, and no process
// outlives its time.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/process.hpp>
#include <nlohmann/json.hpp>
#include <stdlib.h>

#include "driver/measure.hpp"
#include "slots.hpp"

namespace hvd::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::seconds;

constexpr int kTimedOut = 124;

struct Case {
  std::string kind;
  std::string way;
  std::string begin;
  std::string end;
};

class Bounds : public testing::TestWithParam<std::tuple<Case, int>> {};

std::string name_of(const testing::TestParamInfo<Bounds::ParamType>& instance) {
  const auto& [one, ranks] = instance.param;
  std::string name = one.kind + "_" + one.way + "_" + std::to_string(ranks);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Ways, Bounds,
    testing::Combine(
        testing::Values(
            Case{"arena", "line", "4", "48"}, Case{"arena", "one-shot", "4", "64K"},
            Case{"arena", "direct", "52", "3M"}, Case{"arena", "direct-ahead", "70000", "3M"},
            Case{"arena", "direct-stream", "70000", "3M"}, Case{"private", "line", "4", "48"},
            Case{"private", "one-shot", "52", "256K"}, Case{"private", "32K", "20000", "900K"},
            Case{"private", "128K-back", "70000", "3M"}, Case{"private", "256K", "140000", "7M"},
            Case{"private", "64K-stream", "1050004", "8M"}),
        testing::Values(2, 3, 5)),
    name_of);

TEST_P(Bounds, AreRightAtEverySize) {
  const auto& [one, ranks] = GetParam();
  std::string pattern = fs::temp_directory_path() / "hvd-bounds-XXXXXX";
  const int file = ::mkstemp(pattern.data());
  ASSERT_GE(file, 0);
  const UniqueFd closes(file);
  test::ProcessOptions options;
  options.arguments = {BENCH_BOUNDS, one.kind,  "--np",    std::to_string(ranks),
                       "-b",         one.begin, "-e",      one.end,
                       "-f",         "3",       "--iters", "7",
                       "--way",      one.way,   "--json",  pattern,
                       "--timeout",  "120"};
  const test::ProcessResult result = test::run_process(std::move(options), test::in(seconds(150)));
  std::ifstream stream(pattern);
  const json rows = json::parse(stream, nullptr, false);
  fs::remove(pattern);
  ASSERT_EQ(result.exit_code(), 0) << result.out << result.err;
  ASSERT_TRUE(rows.is_array());
  EXPECT_GE(rows.size(), 2U) << result.out;
  for (const json& row : rows) {
    EXPECT_EQ(row.at("wrong"), 0) << row.dump();
    EXPECT_EQ(row.at("ranks"), ranks);
    EXPECT_EQ(row.at("backend"), "bound-" + one.kind + ", " + one.way);
  }
}

std::vector<std::string> endless() {
  return {BENCH_BOUNDS, "private", "--np", "3", "-b", "1M", "-e", "1M", "--seconds", "3000"};
}

TEST(BoundsEnd, WhenTimeIsOver) {
  test::ProcessOptions options;
  options.arguments = endless();
  options.arguments.insert(options.arguments.end(), {"--timeout", "1"});
  EXPECT_EQ(test::run_process(std::move(options), test::in(seconds(60))).exit_code(), kTimedOut);
}

TEST(BoundsEnd, WithTheirParent) {
  test::Lifeline all;
  test::ProcessOptions options;
  options.arguments = endless();
  options.inherited = {all.fd()};
  test::Process process(std::move(options));
  process.wait_for_out("#wrong", test::in(seconds(180)));  // the ranks are there
  process.signal(SIGKILL);
  EXPECT_EQ(process.wait(test::in(seconds(60))).signal(), SIGKILL);
  EXPECT_TRUE(all.all_gone(test::in(seconds(60))));
}

TEST(PeerDriver, RotatesBuffersAsHvdBenchDoes) {
  for (std::size_t bytes = 4; bytes <= std::size_t{1} << 28; bytes *= 4) {
    EXPECT_EQ(peers::rotation(bytes), Slots::count(bytes)) << bytes;
  }
}

}  // namespace
}  // namespace hvd::bench
