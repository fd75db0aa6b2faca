#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <hvd/core/stats.hpp>

namespace hvd {
namespace {

Stats sample_stats() {
  Stats stats;
  stats.submitted = 11;
  stats.bytes = 18'446'744'073'709'551'615ULL;
  stats.schedule_hits = 9;
  stats.communication = std::chrono::nanoseconds(1'234'567'890'123);
  stats.step.count = 4;
  stats.step.window = 3;
  stats.step.last.duration = std::chrono::milliseconds(250);
  stats.step.p99.exposed = std::chrono::nanoseconds(7);
  stats.step.mean.messages = 5;
  stats.slowest_rank = 6;
  stats.slowest_cost = std::chrono::milliseconds(20);
  return stats;
}

TEST(StatsText, JsonHasEveryField) {
  const std::string text = to_json(sample_stats());
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["submitted"], 11);
  EXPECT_EQ(json["bytes"], 18'446'744'073'709'551'615ULL);
  EXPECT_EQ(json["schedule_hits"], 9);
  EXPECT_DOUBLE_EQ(json["communication_seconds"].get<double>(), 1234.567890123);
  EXPECT_EQ(json["step"]["count"], 4);
  EXPECT_DOUBLE_EQ(json["step"]["last"]["duration_seconds"].get<double>(), 0.25);
  EXPECT_DOUBLE_EQ(json["step"]["p99"]["exposed_seconds"].get<double>(), 7e-9);
  EXPECT_EQ(json["step"]["mean"]["messages"], 5);
  EXPECT_EQ(json["slowest_rank"], 6);
  EXPECT_DOUBLE_EQ(json["slowest_cost_seconds"].get<double>(), 0.02);
  EXPECT_EQ(json.size(), 16U + 5U + 1U + 2U);
  EXPECT_EQ(json["step"]["last"].size(), 14U);
}

/// Checks the text format line by line; returns the samples by name and labels.
std::map<std::string, std::string> check_prometheus(const std::string& text) {
  const std::regex help(R"(# HELP ([a-z_]+) [^\n]+)");
  const std::regex type(R"(# TYPE ([a-z_]+) (counter|gauge))");
  const std::string label = R"([a-z]+="(?:[^"\\\n]|\\["\\n])*")";
  const std::regex line("([a-z_]+)(\\{" + label + "(?:," + label +
                        ")*\\}) (-?[0-9]+(?:\\.[0-9]+)?)");
  std::map<std::string, std::string> samples;
  std::set<std::string> families;
  std::string family;
  std::string kind;
  std::istringstream in(text);
  EXPECT_TRUE(text.ends_with('\n'));
  for (std::string row; std::getline(in, row);) {
    std::smatch match;
    if (std::regex_match(row, match, help)) {
      family = match[1];
      EXPECT_TRUE(families.insert(family).second) << family << " twice";
      kind.clear();
    } else if (std::regex_match(row, match, type)) {
      EXPECT_EQ(match[1], family);
      kind = match[2];
      EXPECT_EQ(family.ends_with("_total"), kind == "counter") << family;
    } else if (std::regex_match(row, match, line)) {
      EXPECT_EQ(match[1], family) << row;
      EXPECT_FALSE(kind.empty()) << row;
      EXPECT_TRUE(samples.emplace(match[1].str() + match[2].str(), match[3]).second) << row;
    } else {
      ADD_FAILURE() << "not a line of the format: " << row;
    }
  }
  return samples;
}

TEST(StatsText, PrometheusTextIsWellFormed) {
  const auto samples = check_prometheus(to_prometheus(sample_stats(), {3, "night", "a"}));
  const std::string own = "{job=\"night\",host=\"a\",rank=\"3\"";
  EXPECT_EQ(samples.at("hvd_operations_submitted_total" + own + "}"), "11");
  EXPECT_EQ(samples.at("hvd_collective_bytes_total" + own + "}"), "18446744073709551615");
  EXPECT_EQ(samples.at("hvd_communication_seconds_total" + own + "}"), "1234.567890123");
  EXPECT_EQ(samples.at("hvd_steps_total" + own + "}"), "4");
  EXPECT_EQ(samples.at("hvd_step_duration_seconds" + own + ",stat=\"last\"}"), "0.250000000");
  EXPECT_EQ(samples.at("hvd_step_exposed_seconds" + own + ",stat=\"p99\"}"), "0.000000007");
  EXPECT_EQ(samples.at("hvd_step_messages" + own + ",stat=\"mean\"}"), "5");
  EXPECT_EQ(samples.at("hvd_slowest_rank" + own + "}"), "6");
  EXPECT_EQ(samples.at("hvd_slowest_cost_seconds" + own + "}"), "0.020000000");
  EXPECT_EQ(samples.size(), 16U + 5U + 1U + 2U + 14U * 4U);
}

TEST(StatsText, PrometheusLabelsAreEscaped) {
  const std::string text = to_prometheus({}, {0, "a\"b\\c\nd\xFF", "}{,="});
  EXPECT_EQ(check_prometheus(text).size(), 80U);
  EXPECT_NE(text.find(R"({job="a\"b\\c\nd\\xff",host="}{,=",rank="0"})"), std::string::npos);
}

}  // namespace
}  // namespace hvd
