// Runs hvdtrace on files that real timelines wrote.
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/process.hpp>

#include <hvd/core/internal/timeline.hpp>

#include "scratch.hpp"

namespace hvd::test {
namespace {

using nlohmann::json;
using std::chrono::microseconds;

ProcessResult hvdtrace(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), HVDTRACE);
  ProcessOptions options;
  options.arguments = std::move(arguments);
  return run_process(std::move(options), in(std::chrono::seconds(30)));
}

/// Writes the file of a rank. Rank r's tensor takes r + 1 ms; by the rank's own clock it begins at
/// the same moment as the tensors of the others.
std::string write_rank(const Scratch& scratch, int rank, Clock::time_point begin,
                       microseconds clock_offset) {
  TimelineOptions options;
  options.rank = rank;
  options.host = "node \xFF\"";
  options.clock_offset = clock_offset;
  Timeline timeline(options);
  const std::string path = scratch.file("t.rank" + std::to_string(rank) + ".json");
  timeline.start(path);
  timeline.complete("grad", "NEGOTIATE", begin - microseconds(100), begin);
  timeline.complete("grad", "allreduce", begin, begin + microseconds(1000 * (rank + 1)),
                    {.bytes = 4096, .algorithm = "ring"});
  timeline.mark("step", begin + microseconds(5000));
  timeline.stop();
  return path;
}

struct ThreeRanks {
  Scratch scratch;
  std::vector<std::string> files;

  ThreeRanks() {
    const auto begin = Clock::now();
    for (int rank = 0; rank < 3; ++rank) {
      files.push_back(write_rank(scratch, rank, begin, microseconds(100'000 * rank)));
    }
  }
  [[nodiscard]] std::vector<std::string> command(std::vector<std::string> front) const {
    front.insert(front.end(), files.begin(), files.end());
    return front;
  }
};

TEST(Hvdtrace, MergesRanksOnOneClock) {
  const ThreeRanks ranks;
  const std::string out = ranks.scratch.file("all.json");
  const ProcessResult result = hvdtrace(ranks.command({"merge", out}));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  const json trace = read_json(out);
  std::map<int, double> begins;
  std::map<int, std::string> names;
  double first = 1e300;
  for (const json& event : trace) {
    if (event.contains("ts")) first = std::min(first, event["ts"].get<double>());
    if (event["name"] == "allreduce (ring)") begins[event["pid"].get<int>()] = event["ts"];
    if (event["name"] == "process_name") names[event["pid"].get<int>()] = event["args"]["name"];
  }
  EXPECT_EQ(first, 0.0);
  ASSERT_EQ(begins.size(), 3U);
  EXPECT_EQ(names.at(2), "rank 2 (node \\xff\")");
  // Ranks read the wall clock at different moments, and it may have been adjusted in between.
  EXPECT_NEAR(begins.at(0), 100.0, 1000.0);
  EXPECT_NEAR(begins.at(1) - begins.at(0), 100'000.0, 1000.0);
  EXPECT_NEAR(begins.at(2) - begins.at(0), 200'000.0, 1000.0);
  EXPECT_FALSE(std::filesystem::exists(out + ".part"));
}

TEST(Hvdtrace, AMergedFileIsAnInputToo) {
  const ThreeRanks ranks;
  const std::string two = ranks.scratch.file("two.json");
  ASSERT_EQ(hvdtrace({"merge", two, ranks.files[0], ranks.files[1]}).exit_code(), 0);
  // The output is one of the inputs.
  ASSERT_EQ(hvdtrace({"merge", two, two, ranks.files[2]}).exit_code(), 0);
  const std::string all = ranks.scratch.file("all.json");
  ASSERT_EQ(hvdtrace(ranks.command({"merge", all})).exit_code(), 0);
  EXPECT_EQ(read_json(two), read_json(all));
}

TEST(Hvdtrace, SumsUpPhases) {
  const ThreeRanks ranks;
  const ProcessResult result = hvdtrace(ranks.command({"summary"}));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  std::istringstream lines(result.out);
  std::string heading;
  std::string first;
  std::getline(lines, heading);
  std::getline(lines, first);
  EXPECT_EQ(heading.rfind("phase", 0), 0U) << heading;
  std::istringstream row(first);
  std::string name;
  std::string algorithm;
  int events = 0;
  double total = 0;
  double mean = 0;
  double most = 0;
  long bytes = 0;
  int busiest = -1;
  row >> name >> algorithm >> events >> total >> mean >> most >> bytes >> busiest;
  EXPECT_EQ(name + " " + algorithm, "allreduce (ring)");
  EXPECT_EQ(events, 3);
  EXPECT_NEAR(total, 6.0, 0.001);
  EXPECT_NEAR(mean, 2000.0, 0.1);
  EXPECT_NEAR(most, 3000.0, 0.1);
  EXPECT_EQ(bytes, 3 * 4096);
  EXPECT_EQ(busiest, 2);
  EXPECT_NE(result.out.find("NEGOTIATE"), std::string::npos);
}

TEST(Hvdtrace, SaysWhatIsWrongWithAFile) {
  const ThreeRanks ranks;
  const std::string out = ranks.scratch.file("out.json");
  const auto expect_bad = [&](const std::string& file, const std::string& why) {
    const ProcessResult result = hvdtrace({"merge", out, file});
    EXPECT_EQ(result.exit_code(), 65) << result.out << result.err;
    EXPECT_NE(result.err.find(file), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(out));
    EXPECT_FALSE(std::filesystem::exists(out + ".part"));
  };
  expect_bad(ranks.scratch.file("missing"), "cannot be read");
  const auto with = [&](const std::string& text) {
    std::ofstream(ranks.scratch.file("bad")) << text;
    return ranks.scratch.file("bad");
  };
  expect_bad(with(""), "");
  expect_bad(with("[]"), "not a timeline of hvd");
  expect_bad(with("{\"traceEvents\":[]}"), "not a timeline of hvd");
  expect_bad(with("[{\"ph\":\"X\",\"pid\":0,\"ts\":1,\"dur\":1}]"), "not a timeline of hvd");
  expect_bad(with("[{\"ph\":\"X\"}]"), "pid");
  expect_bad(
      with("[{\"ph\":\"M\",\"name\":\"hvd_rank\",\"pid\":0,\"args\":{\"format\":1,\"rank\":0,"
           "\"host\":\"a\",\"steady_to_unix_ns\":9223372036854775807,\"clock_offset_ns\":1}}]"),
      "steady_to_unix_ns is out of range");
  // Both are more than the number's type holds.
  const std::string origin =
      "[{\"ph\":\"M\",\"name\":\"hvd_rank\",\"pid\":0,\"args\":{\"format\":1,\"rank\":0,"
      "\"host\":\"a\",\"steady_to_unix_ns\":0,\"clock_offset_ns\":0}},";
  for (const std::string& event :
       {std::string("{\"ph\":\"X\",\"name\":\"a\",\"pid\":0,\"ts\":1,\"dur\":1,\"args\":{\"bytes\":"
                    "4e36}}]"),
        std::string("{\"ph\":\"i\",\"pid\":0,\"ts\":1,\"args\":{\"dropped\":4e36}}]")}) {
    const ProcessResult result = hvdtrace({"summary", with(origin + event)});
    EXPECT_EQ(result.exit_code(), 65) << result.out;
    EXPECT_NE(result.err.find("not a whole number in range"), std::string::npos) << result.err;
  }
  const std::string good = read_file(ranks.files[0]);
  const std::size_t key = good.rfind("\"ph\"");  // outside every string
  expect_bad(with(good.substr(0, key) + "!" + good.substr(key)), "parse error");
  const ProcessResult twice = hvdtrace({"merge", out, ranks.files[1], ranks.files[1]});
  EXPECT_EQ(twice.exit_code(), 65);
  EXPECT_NE(twice.err.find("both of rank 1"), std::string::npos) << twice.err;
}

// A kill within a write cuts the array anywhere, or leaves half of what replaces its "\n]\n".
TEST(Hvdtrace, ReadsWhatAKilledRankLeft) {
  const ThreeRanks ranks;
  const std::string good = read_file(ranks.files[0]);
  const std::string whole = good.substr(0, good.size() - 3);
  for (const std::string& left : {good.substr(0, good.size() / 2), whole, whole + ",]\n",
                                  whole + ",\n", whole + ",\n{\"ph\":\"X"}) {
    std::ofstream(ranks.files[0]) << left;
    const std::string out = ranks.scratch.file("out.json");
    const ProcessResult result = hvdtrace(ranks.command({"merge", out}));
    EXPECT_EQ(result.exit_code(), 0) << left << result.err;
    EXPECT_NE(read_file(out).find("hvd_rank"), std::string::npos);
  }
}

TEST(Hvdtrace, SaysHowItIsUsed) {
  EXPECT_EQ(hvdtrace({}).exit_code(), 64);
  EXPECT_EQ(hvdtrace({"merge", "only-out"}).exit_code(), 64);
  EXPECT_EQ(hvdtrace({"melt", "x", "y"}).exit_code(), 64);
  const ProcessResult help = hvdtrace({"--help"});
  EXPECT_EQ(help.exit_code(), 0);
  EXPECT_NE(help.out.find("merge"), std::string::npos);
  const ThreeRanks ranks;
  EXPECT_EQ(hvdtrace({"merge", "/no/such/directory/out", ranks.files[0]}).exit_code(), 74);
}

}  // namespace
}  // namespace hvd::test
