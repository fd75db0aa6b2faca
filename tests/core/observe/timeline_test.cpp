#include <array>
#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/timeline.hpp>
#include <hvd/core/timeline.hpp>

#include "scratch.hpp"

namespace hvd {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using test::read_json;
using test::Scratch;

Clock::time_point at(int millisecond) { return Clock::time_point(milliseconds(millisecond)); }

TimelineOptions rank_options(int rank) {
  TimelineOptions options;
  options.rank = rank;
  options.host = "node";
  return options;
}

std::vector<json> of_kind(const json& trace, const std::string& kind) {
  std::vector<json> found;
  for (const json& event : trace) {
    if (event.at("ph") == kind) found.push_back(event);
  }
  return found;
}

std::string lane_name(const json& trace, const json& event) {
  std::string name;
  for (const json& meta : of_kind(trace, "M")) {
    if (meta["name"] == "thread_name" && meta["tid"] == event["tid"]) name = meta["args"]["name"];
  }
  return name;
}

TEST(Timeline, WritesWhatHappenedToATensor) {
  const Scratch scratch;
  Timeline timeline(rank_options(3));
  EXPECT_FALSE(timeline.on());
  timeline.start(scratch.file("t.json"));
  EXPECT_TRUE(timeline.on());
  EXPECT_EQ(timeline.path(), scratch.file("t.json"));
  const std::array<std::int64_t, 2> shape{64, 32};
  timeline.complete("fc.weight", timeline_phase::kNegotiate, at(1), at(2));
  timeline.complete(
      "fc.weight", "allreduce", at(3), at(5),
      {.dtype = DType::f32, .shape = shape, .bytes = 8192, .fused = 4, .algorithm = "ring"});
  timeline.complete("fc.bias", timeline_phase::kQueue, at(4), at(3));  // clocks: never negative
  timeline.mark("step", at(7));
  timeline.stop();
  EXPECT_FALSE(timeline.on());
  EXPECT_EQ(timeline.path(), "");

  const json trace = read_json(scratch.file("t.json"));
  const auto spans = of_kind(trace, "X");
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0]["name"], "NEGOTIATE");
  EXPECT_EQ(spans[0]["cat"], "NEGOTIATE");
  EXPECT_EQ(spans[0]["ts"], 1000.0);
  EXPECT_EQ(spans[0]["dur"], 1000.0);
  EXPECT_FALSE(spans[0]["args"].contains("dtype"));
  EXPECT_EQ(spans[1]["name"], "allreduce (ring)");
  EXPECT_EQ(spans[1]["cat"], "allreduce");
  EXPECT_EQ(spans[1]["args"], json({{"tensor", "fc.weight"},
                                    {"dtype", std::string(to_string(DType::f32))},
                                    {"shape", {64, 32}},
                                    {"bytes", 8192},
                                    {"fused", 4},
                                    {"algorithm", "ring"}}));
  EXPECT_EQ(spans[2]["dur"], 0.0);
  EXPECT_EQ(spans[0]["tid"], spans[1]["tid"]);
  EXPECT_NE(spans[0]["tid"], spans[2]["tid"]);
  EXPECT_EQ(lane_name(trace, spans[0]), "fc.weight");
  EXPECT_EQ(lane_name(trace, spans[2]), "fc.bias");
  for (const json& event : trace) EXPECT_EQ(event["pid"], 3);

  const auto marks = of_kind(trace, "i");
  ASSERT_EQ(marks.size(), 1U);
  EXPECT_EQ(marks[0]["name"], "step");
  EXPECT_EQ(marks[0]["ts"], 7000.0);

  EXPECT_EQ(trace[0]["name"], "hvd_rank");
  EXPECT_EQ(trace[0]["args"]["rank"], 3);
  EXPECT_EQ(trace[1]["args"]["name"], "rank 3 (node)");
  // The sum of the two clocks is the current time.
  const auto unix_now = std::chrono::system_clock::now().time_since_epoch();
  const std::chrono::nanoseconds origin(trace[0]["args"]["steady_to_unix_ns"].get<std::int64_t>());
  EXPECT_LT(std::chrono::abs(origin + Clock::now().time_since_epoch() - unix_now),
            std::chrono::seconds(60));
}

TEST(Timeline, RecordsNothingWhileOff) {
  const Scratch scratch;
  Timeline timeline(rank_options(0));
  timeline.complete("before", "QUEUE", at(1), at(2));
  timeline.start(scratch.file("a"));
  timeline.complete("within", "QUEUE", at(1), at(2));
  timeline.stop();
  timeline.stop();
  timeline.complete("after", "QUEUE", at(1), at(2));
  timeline.start(scratch.file("b"));
  timeline.stop();
  ASSERT_EQ(of_kind(read_json(scratch.file("a")), "X").size(), 1U);
  EXPECT_EQ(of_kind(read_json(scratch.file("a")), "X")[0]["args"]["tensor"], "within");
  EXPECT_TRUE(of_kind(read_json(scratch.file("b")), "X").empty());
}

TEST(Timeline, StartsOnceAtATimeAndNamesWhatFails) {
  const Scratch scratch;
  Timeline timeline(rank_options(0));
  timeline.start(scratch.file("a"));
  try {
    timeline.start(scratch.file("b"));
    ADD_FAILURE() << "started twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(scratch.file("a")), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(scratch.file("b")));
  timeline.stop();
  EXPECT_THROW(timeline.start(scratch.file("no/such/directory")), Error);
  EXPECT_FALSE(timeline.on());
  timeline.start(scratch.file("c"));  // usable as before
}

TEST(Timeline, TakesNamesOfAnyBytes) {
  const Scratch scratch;
  TimelineOptions options = rank_options(0);
  options.host = "ho\"st\xFF\n";
  Timeline timeline(options);
  timeline.start(scratch.file("t"));
  std::vector<std::string> names = {"\"quoted\\\"",
                                    std::string("nul\0nul", 7),
                                    "line\nline\r\t\x1b[0m",
                                    "\xFF\xFE\xC3",
                                    "größe",
                                    "",
                                    "</script>",
                                    std::string(5000, '"'),
                                    std::string(70'000, '\x01')};
  for (const std::string& name : names) {
    timeline.complete(name, name, at(1), at(2), {.dtype = DType::u8, .algorithm = name});
    timeline.mark(name, at(3));
  }
  timeline.stop();
  const json trace = read_json(scratch.file("t"));
  const auto spans = of_kind(trace, "X");
  ASSERT_EQ(spans.size(), names.size());
  EXPECT_EQ(of_kind(trace, "i").size(), names.size());
  EXPECT_EQ(spans[0]["args"]["tensor"], names[0]);
  EXPECT_EQ(spans[1]["args"]["tensor"], names[1]);
  EXPECT_EQ(spans[2]["args"]["tensor"], names[2]);
  EXPECT_EQ(spans[3]["args"]["tensor"], "\\xff\\xfe\\xc3");
  EXPECT_EQ(spans[4]["args"]["tensor"], names[4]);
  EXPECT_EQ(timeline.dropped(), 0U);
}

// The longest texts, which all need escapes, with every argument: each event must fit into a page.
TEST(Timeline, TheLongestEventFits) {
  const Scratch scratch;
  Timeline timeline(rank_options(2'147'483'647));
  timeline.start(scratch.file("t"));
  const std::string worst(70'000, '\x01');
  const std::vector<std::int64_t> shape(100, std::numeric_limits<std::int64_t>::min());
  const auto most = std::numeric_limits<std::uint64_t>::max();
  timeline.complete(
      worst, worst, Clock::time_point::min(), Clock::time_point::min() + milliseconds(1),
      {.dtype = DType::boolean, .shape = shape, .bytes = most, .fused = most, .algorithm = worst});
  timeline.stop();
  EXPECT_EQ(of_kind(read_json(scratch.file("t")), "X").size(), 1U);
}

TEST(Timeline, FlushesWithoutBeingStopped) {
  const Scratch scratch;
  TimelineOptions options = rank_options(0);
  options.flush_interval = milliseconds(1);
  Timeline timeline(options);
  timeline.start(scratch.file("t"));
  timeline.complete("a", "QUEUE", at(1), at(2));
  const Deadline deadline = Clock::now() + std::chrono::seconds(30);
  std::size_t seen = 0;
  while (seen == 0 && Clock::now() < deadline) {
    const std::string text = test::read_file(scratch.file("t"));
    if (json::accept(text)) seen = of_kind(json::parse(text), "X").size();  // not amid a flush
    std::this_thread::yield();
  }
  EXPECT_EQ(seen, 1U);
}

TEST(Timeline, DropsWhatHasNoRoomInMemoryAndSaysSo) {
  const Scratch scratch;
  TimelineOptions options = rank_options(0);
  options.buffer_bytes = 1000;
  options.flush_interval = std::chrono::hours(1);
  Timeline timeline(options);
  timeline.start(scratch.file("t"));
  constexpr int kEvents = 20'000;
  const std::string name(300, 'n');
  for (int i = 0; i < kEvents; ++i) timeline.complete(name, "QUEUE", at(i), at(i + 1));
  timeline.stop();
  const json trace = read_json(scratch.file("t"));
  const auto spans = of_kind(trace, "X");
  std::uint64_t said = 0;
  for (const json& mark : of_kind(trace, "i")) said += mark["args"]["dropped"].get<std::uint64_t>();
  EXPECT_GT(timeline.dropped(), 0U);
  EXPECT_EQ(said, timeline.dropped());
  EXPECT_EQ(spans.size() + said, static_cast<std::size_t>(kEvents));
}

TEST(Timeline, DropsWhatHasNoRoomInTheFileAndSaysSo) {
  const Scratch scratch;
  TimelineOptions options = rank_options(0);
  options.max_file_bytes = std::size_t{64} << 10;
  options.flush_interval = milliseconds(1);
  Timeline timeline(options);
  timeline.start(scratch.file("t"));
  constexpr int kEvents = 20'000;
  for (int i = 0; i < kEvents; ++i) timeline.complete("name", "QUEUE", at(i), at(i + 1));
  timeline.stop();
  const json trace = read_json(scratch.file("t"));
  std::uint64_t said = 0;
  for (const json& mark : of_kind(trace, "i")) said += mark["args"]["dropped"].get<std::uint64_t>();
  EXPECT_GT(said, 0U);
  EXPECT_EQ(said, timeline.dropped());
  EXPECT_EQ(of_kind(trace, "X").size() + said, static_cast<std::size_t>(kEvents));
  EXPECT_LE(std::filesystem::file_size(scratch.file("t")), (std::size_t{64} << 10) + 4096);
}

TEST(Timeline, LanesStayBounded) {
  const Scratch scratch;
  TimelineOptions options = rank_options(0);
  options.max_lanes = 8;
  Timeline timeline(options);
  timeline.start(scratch.file("t"));
  for (int i = 0; i < 1000; ++i) {
    timeline.complete("metric." + std::to_string(i), "QUEUE", at(i), at(i + 1));
  }
  timeline.stop();
  const json trace = read_json(scratch.file("t"));
  std::set<int> lanes;
  for (const json& span : of_kind(trace, "X")) lanes.insert(span["tid"].get<int>());
  EXPECT_EQ(lanes.size(), 8U);
  EXPECT_EQ(lane_name(trace, of_kind(trace, "X").back()).rfind("several tensors", 0), 0U);
}

TEST(Timeline, StartsAndStopsFiftyTimes) {
  const Scratch scratch;
  Timeline timeline(rank_options(0));
  for (int i = 0; i < 50; ++i) {
    timeline.start(scratch.file("t"));
    for (int j = 0; j <= i; ++j) timeline.complete("a", "QUEUE", at(j), at(j + 1));
    timeline.stop();
    ASSERT_EQ(of_kind(read_json(scratch.file("t")), "X").size(), static_cast<std::size_t>(i + 1));
  }
  EXPECT_FALSE(std::filesystem::exists(scratch.file("t.part")));
}

TEST(Timeline, ThreadsRecordWhileAnotherStartsAndStops) {
  const Scratch scratch;
  TimelineOptions options = rank_options(0);
  options.flush_interval = milliseconds(1);
  Timeline timeline(options);
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> recorded{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "tensor " + std::to_string(t);
      const std::array<std::int64_t, 1> shape{t};
      for (int i = 0; !over; ++i) {
        timeline.complete(name, "QUEUE", at(i), at(i + 1), {.dtype = DType::f32, .shape = shape});
        timeline.mark("step", at(i));
        recorded.fetch_add(1, std::memory_order_relaxed);
        std::this_thread::yield();
      }
    });
  }
  std::size_t seen = 0;
  for (int i = 0; i < 20; ++i) {
    timeline.start(scratch.file("t"));
    const std::uint64_t before = recorded;
    while (recorded < before + 200) std::this_thread::yield();
    timeline.stop();
    seen += of_kind(read_json(scratch.file("t")), "X").size();
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(seen, 20U * 100U);
}

TEST(Timeline, TheDestructorStops) {
  const Scratch scratch;
  {
    Timeline timeline(rank_options(0));
    timeline.start(scratch.file("t"));
    timeline.complete("a", "QUEUE", at(1), at(2));
  }
  EXPECT_EQ(of_kind(read_json(scratch.file("t")), "X").size(), 1U);
}

TEST(TimelinePath, EachRankHasItsOwn) {
  EXPECT_EQ(timeline_path("a/trace.json", 3), "a/trace.rank3.json");
  EXPECT_EQ(timeline_path("trace", 0), "trace.rank0.json");
  EXPECT_EQ(timeline_path("a.b/trace", 12), "a.b/trace.rank12.json");
  EXPECT_EQ(timeline_path("a/.hidden", 1), "a/.hidden.rank1.json");
  EXPECT_EQ(timeline_path("a/", 1), "a/timeline.rank1.json");
  EXPECT_EQ(timeline_path("", 1), "timeline.rank1.json");
  EXPECT_EQ(timeline_path(timeline_of_generation("a/trace.json", 2), 3),
            "a/trace.generation2.rank3.json");
}

}  // namespace
}  // namespace hvd
