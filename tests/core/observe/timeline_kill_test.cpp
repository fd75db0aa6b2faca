// Tests that a process which is killed while it traces leaves a valid file.
#include <csignal>
#include <string>

#include <gtest/gtest.h>
#include <hvd_test/process.hpp>

#include "scratch.hpp"

namespace hvd::test {
namespace {

constexpr std::chrono::seconds kLimit{60};

TEST(TimelineKill, EveryElementButTheLastIsWholeWheneverTheProcessIsKilled) {
  const Scratch scratch;
  std::size_t spans = 0;
  std::size_t largest = 0;
  for (int round = 0; round < 30; ++round) {
    const std::string path = scratch.file("trace.json");
    std::filesystem::remove(path);
    ProcessOptions options;
    options.arguments = {HVD_TEST_TIMELINE_CHILD, path};
    Process child(std::move(options));
    child.wait_for_out("event " + std::to_string(500 * (1 + round)) + "\n", in(kLimit));
    child.signal(SIGKILL);
    EXPECT_EQ(child.wait(in(kLimit)).signal(), SIGKILL);

    // A kill within a write may cut the last element or the closing bracket.
    const std::string text = read_file(path);
    auto trace = nlohmann::json::parse(text, nullptr, false);
    if (trace.is_discarded()) {
      trace = nlohmann::json::parse(text.substr(0, text.rfind(",\n")) + "]", nullptr, false);
    }
    ASSERT_TRUE(trace.is_array()) << "round " << round;
    EXPECT_EQ(trace.at(0).at("name"), "hvd_rank");
    for (const auto& event : trace) spans += event.at("ph") == "X" ? 1U : 0U;
    largest = std::max(largest, trace.size());
  }
  EXPECT_GT(spans, 1000U);
  EXPECT_GT(largest, 1000U);
}

}  // namespace
}  // namespace hvd::test
