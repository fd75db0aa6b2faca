// Tests timeline, metrics endpoint and step statistics of whole contexts with ranks as threads.
#include <algorithm>
#include <array>
#include <functional>
#include <latch>
#include <set>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>
#include <hvd_test/ranks.hpp>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>

#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/timeline.hpp>
#include <hvd/core/log.hpp>
#include <hvd/core/timeline.hpp>
#include <hvd/hvd.hpp>

#include "scratch.hpp"

namespace hvd {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using test::read_json;
using test::Scratch;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr int kTensors = 6;

void expect_run(int size, const std::function<void(Context&)>& body,
                const std::function<void(Config&)>& configure = {}) {
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(size, [&](int rank) {
    Config config = test::thread_config(rank, size);
    if (configure) configure(config);
    const auto context = make_context(config, store);
    body(*context);
    context->shutdown();
  });
}

/// The gradients g0 … g5 of one step: g0 has 10 elements, g1 20, …
class Step {
 public:
  explicit Step(Context& context) : context_(context) {
    for (std::size_t i = 1; i <= kTensors; ++i) data_.emplace_back(10 * i);
  }
  void run() {
    std::vector<Work> works;
    for (std::size_t i = 0; i < kTensors; ++i) {
      works.push_back(allreduce_async(
          data_[i].data(), data_[i].data(), std::ssize(data_[i]), DType::f32,
          {.name = "g" + std::to_string(i), .op = ReduceOp::sum, .context = &context_}));
    }
    for (const Work& work : works) work.wait();
  }
  void run(int steps) {
    for (int i = 0; i < steps; ++i) run();
  }

 private:
  Context& context_;
  std::vector<std::vector<float>> data_;
};

// ---- the timeline

std::vector<json> spans_of(const json& trace, const std::string& tensor) {
  std::vector<json> spans;
  for (const json& event : trace) {
    if (event.at("ph") == "X" && event.at("args").at("tensor") == tensor) spans.push_back(event);
  }
  return spans;
}

std::vector<json> of_category(const std::vector<json>& spans, const std::string& category) {
  std::vector<json> found;
  for (const json& span : spans) {
    if (span.at("cat") == category) found.push_back(span);
  }
  return found;
}

std::multiset<std::string> marks_of(const json& trace) {
  std::multiset<std::string> names;
  for (const json& event : trace) {
    if (event.at("ph") == "i") names.insert(event.at("name").get<std::string>());
  }
  return names;
}

/// Checks every phase of `steps` steps, in order, and the bytes.
void expect_steps(const json& trace, int steps) {
  std::uint64_t fused = 0;
  for (int i = 0; i < kTensors; ++i) {
    const std::string name = "g" + std::to_string(i);
    SCOPED_TRACE(name);
    const std::vector<json> spans = spans_of(trace, name);
    for (const char* phase : {"NEGOTIATE", "QUEUE", "allreduce"}) {
      EXPECT_EQ(of_category(spans, phase).size(), static_cast<std::size_t>(steps)) << phase;
    }
    const std::vector<json> calls = of_category(spans, "allreduce");
    for (const json& call : calls) {
      EXPECT_THAT(call.at("name").get<std::string>(), HasSubstr("allreduce ("));
      const json& args = call.at("args");
      EXPECT_EQ(args.at("dtype"), std::string(to_string(DType::f32)));
      EXPECT_EQ(args.at("shape"), json({10 * (i + 1)}));
      EXPECT_EQ(args.at("bytes"), 4 * 10 * (i + 1));
      if (args.contains("fused")) ++fused;
    }
    // Tensors that share a call are copied in and out within it.
    const auto shared =
        static_cast<std::size_t>(std::count_if(calls.begin(), calls.end(), [](const json& call) {
          return call.at("args").contains("fused");
        }));
    EXPECT_EQ(of_category(spans, "MEMCPY_IN").size(), shared);
    EXPECT_EQ(of_category(spans, "MEMCPY_OUT").size(), shared);
    for (const json& copy : of_category(spans, "MEMCPY_IN")) {
      const double begin = copy.at("ts");
      const double end = begin + copy.at("dur").get<double>();
      EXPECT_TRUE(std::any_of(calls.begin(), calls.end(), [&](const json& call) {
        const double from = call.at("ts");
        return from <= begin && end <= from + call.at("dur").get<double>() + 0.01;
      })) << copy;
    }
  }
  EXPECT_GT(fused, 0U) << "nothing was fused";
}

class TimelineAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TimelineAt, testing::Values(2, 3));

TEST_P(TimelineAt, StartsAndStopsAtRunTimeWhileFrozen) {
  const Scratch scratch;
  expect_run(GetParam(), [&](Context& context) {
    Step step(context);
    step.run(20);
    const std::string path = scratch.file("frozen" + std::to_string(context.rank()));
    const Stats before = context.stats();
    context.start_timeline(path);
    step.run(10);
    context.stop_timeline();
    const Stats after = context.stats();
    step.run(10);  // not in the file
    EXPECT_EQ(after.schedule_hits - before.schedule_hits, 10U * kTensors);
    EXPECT_EQ(after.negotiated, before.negotiated);
    EXPECT_EQ(after.timeline_dropped, 0U);
    expect_steps(read_json(path), 10);
  });
}

TEST_P(TimelineAt, StartsAndStopsAtRunTimeWhileNegotiating) {
  const Scratch scratch;
  expect_run(
      GetParam(),
      [&](Context& context) {
        Step step(context);
        step.run(5);
        for (const std::string part : {"first", "second"}) {
          const std::string path = scratch.file(part + std::to_string(context.rank()));
          context.start_timeline(path);
          EXPECT_THROW(context.start_timeline(path), Error) << "it is on already";
          step.run(7);
          context.stop_timeline();
          step.run(3);
          expect_steps(read_json(path), 7);
        }
        EXPECT_EQ(context.stats().schedule_hits, 0U);
      },
      [](Config& config) { config.freeze_after = 0; });
}

TEST_P(TimelineAt, MarksStepsFreezesAndThaws) {
  const Scratch scratch;
  expect_run(GetParam(), [&](Context& context) {
    const std::string path = scratch.file("marks" + std::to_string(context.rank()));
    context.start_timeline(path);
    Step step(context);
    for (int i = 0; i < 20; ++i) {
      step.run();
      context.mark_step();
    }
    std::vector<float> metric(1);
    allreduce(std::span(metric), {.name = "metric", .op = ReduceOp::sum, .context = &context});
    const Stats stats = context.stats();
    context.stop_timeline();
    step.run();  // ranks leave together, since a shutdown request would thaw
    const std::multiset<std::string> marks = marks_of(read_json(path));
    EXPECT_EQ(marks.count("step"), 20U);
    EXPECT_GE(marks.count("freeze"), 1U);
    EXPECT_EQ(marks.count("freeze"), stats.freezes);
    EXPECT_GE(marks.count("thaw"), 1U);
    EXPECT_EQ(marks.count("thaw"), stats.thaws);
  });
}

TEST_P(TimelineAt, OfTheConfigurationIsOneFilePerRank) {
  const Scratch scratch;
  const std::string name = scratch.file("trace.json");
  expect_run(
      GetParam(), [](Context& context) { Step(context).run(20); },
      [&](Config& config) { config.timeline = name; });
  for (int rank = 0; rank < GetParam(); ++rank) {
    const json trace = read_json(timeline_path(name, rank));
    EXPECT_EQ(trace.at(0).at("name"), "hvd_rank");
    EXPECT_EQ(trace.at(0).at("args").at("rank"), rank);
    expect_steps(trace, 20);
  }
}

// ---- the metrics endpoint

UniqueFd tcp_socket() { return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// Binds the port; returns 0 when it is taken.
int bound_port(const UniqueFd& socket, int port) {
  sockaddr_in address = loopback(port);
  socklen_t length = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), any, length) != 0) return 0;
  if (::getsockname(socket.get(), any, &length) != 0) return 0;
  return ntohs(address.sin_port);
}

/// Returns the first of `count` consecutive ports that were free just now.
int free_ports(int count) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::vector<UniqueFd> held;
    held.push_back(tcp_socket());
    const int first = bound_port(held.back(), 0);
    bool free = first > 0 && first + count < 65'536;
    for (int i = 1; free && i < count; ++i) {
      held.push_back(tcp_socket());
      free = bound_port(held.back(), first + i) > 0;
    }
    if (free) return first;
  }
  throw std::runtime_error("no ports are free");
}

/// Returns the body of the answer; throws when there is none within 30 s.
std::string http_get(int port, const std::string& path) {
  const UniqueFd socket = tcp_socket();
  const sockaddr_in address = loopback(port);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error("cannot connect to port " + std::to_string(port));
  }
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n";
  if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) {
    throw std::runtime_error("cannot send");
  }
  std::string answer;
  for (const Deadline deadline = Clock::now() + std::chrono::seconds(30);;) {
    pollfd ready{socket.get(), POLLIN, 0};
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) != 1) {
      throw std::runtime_error("no end of the answer: " + answer);
    }
    std::array<char, 4096> block{};
    const ssize_t got = ::recv(socket.get(), block.data(), block.size(), 0);
    if (got <= 0) break;
    answer.append(block.data(), static_cast<std::size_t>(got));
  }
  EXPECT_EQ(answer.rfind("HTTP/1.1 200 ", 0), 0U) << answer;
  const std::size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

class MetricsAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MetricsAt, testing::Values(1, 2, 3));

// Rank 0 asks all of them while the others are blocked in a step that it has not begun.
TEST_P(MetricsAt, AreServedByEveryRankDuringARun) {
  const int size = GetParam();
  const int base = free_ports(size);
  std::latch counted(size);
  expect_run(
      size,
      [&](Context& context) {
        Step step(context);
        step.run(20);
        counted.arrive_and_wait();
        if (context.rank() == 0) {
          for (int rank = 0; rank < size; ++rank) {
            SCOPED_TRACE(rank);
            const std::string metrics = http_get(base + rank, "/metrics");
            EXPECT_THAT(metrics, HasSubstr("rank=\"" + std::to_string(rank) + "\"} "));
            EXPECT_THAT(metrics, HasSubstr("# TYPE hvd_schedule_hits_total counter\n"));
            const json stats = json::parse(http_get(base + rank, "/stats.json"));
            EXPECT_GE(stats.at("submitted"), 20 * kTensors);
            EXPECT_LE(stats.at("submitted"), 21 * kTensors);
            EXPECT_EQ(stats.at("completed"), 20 * kTensors);
            EXPECT_TRUE(size == 1 || stats.at("schedule_hits") > 0);
          }
          // A program that a rank starts, and that outlives it, must not hold its ports.
          test::ProcessOptions list;
          list.arguments = {"ls", "-l", "/proc/self/fd"};
          const auto inherited = test::run_process(list, test::in(std::chrono::seconds(30)));
          EXPECT_EQ(inherited.exit_code(), 0) << inherited.err;
          EXPECT_THAT(inherited.out, Not(ContainsRegex("socket|memfd|anon_inode")));
        }
        step.run();
      },
      [&](Config& config) { config.metrics_port = base; });
  EXPECT_THROW(static_cast<void>(http_get(base, "/metrics")), std::runtime_error);
}

// ---- statistics

/// Computes on this thread for `time`.
void work_for(milliseconds time) {
  for (const auto until = Clock::now() + time; Clock::now() < until;) continue;
}

TEST_P(MetricsAt, AStepIsComputeAndExposedCommunication) {
  expect_run(GetParam(), [](Context& context) {
    constexpr std::uint64_t kOperations = kTensors + 1;
    constexpr milliseconds kCompute{2};
    Step step(context);
    std::vector<float> loss(1);
    const auto train = [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        work_for(kCompute);
        step.run();
        allreduce(std::span(loss),
                  {.name = "loss", .op = ReduceOp::sum, .context = &context});  // is waited for
        context.mark_step();
      }
    };
    train(20);
    const Stats before = context.stats();
    train(10);
    const Stats stats = context.stats();
    step.run();  // nobody leaves before everybody has counted: a shutdown thaws
    EXPECT_EQ(stats.step.count, before.step.count + 10);
    const StepSample& last = stats.step.last;
    EXPECT_EQ(last.duration, last.compute + last.exposed);
    EXPECT_GE(last.compute, kCompute);
    EXPECT_EQ(last.operations, kOperations);
    EXPECT_EQ(last.bytes, 4U * (210U + 1U));
    EXPECT_GT(last.collectives, 0U);
    if (context.size() == 1) return;
    EXPECT_GT(stats.exposed, before.exposed);
    EXPECT_GT(last.communication.count(), 0);
    EXPECT_EQ(last.schedule_hits, kOperations);
    EXPECT_EQ(last.negotiated, 0U);
    EXPECT_EQ(last.messages, 0U);
    EXPECT_EQ(stats.schedule_hits - before.schedule_hits, 10 * kOperations);
    EXPECT_GT(stats.fused_tensors, before.fused_tensors);
    EXPECT_GT(stats.pack, before.pack);
  });
}

TEST_P(MetricsAt, ABarrierHasNoBytes) {
  const Scratch scratch;
  expect_run(GetParam(), [&](Context& context) {
    const std::string path = scratch.file("barrier" + std::to_string(context.rank()));
    context.start_timeline(path);
    const Stats before = context.stats();
    barrier({.name = "all", .context = &context});
    const Stats after = context.stats();
    context.stop_timeline();
    EXPECT_EQ(after.collectives, before.collectives + 1);
    EXPECT_EQ(after.bytes, before.bytes);
    const std::vector<json> calls = of_category(spans_of(read_json(path), "all"), "barrier");
    ASSERT_EQ(calls.size(), 1U);
    EXPECT_FALSE(calls.front().at("args").contains("bytes"));
  });
}

TEST(Statistics, AWaitWithADeadlineIsExposedCommunication) {
  std::latch waited(2);
  expect_run(2, [&](Context& context) {
    std::vector<float> data(1);
    const auto submit = [&] {
      return allreduce_async(data.data(), data.data(), std::ssize(data), DType::f32,
                             {.name = "late", .op = ReduceOp::sum, .context = &context});
    };
    if (context.rank() == 1) {
      waited.arrive_and_wait();
      submit().wait();
      return;
    }
    const Work work = submit();
    const Stats before = context.stats();
    EXPECT_FALSE(work.wait_until(Clock::now() + milliseconds(50)));
    EXPECT_GT(context.stats().exposed, before.exposed);
    waited.arrive_and_wait();
    work.wait();
  });
}

TEST_P(MetricsAt, AProgramThatEndsItsStepsCountsThemAlone) {
  expect_run(GetParam(), [](Context& context) {
    context.mark_step();  // begins the first step
    context.mark_step();
    EXPECT_EQ(context.stats().step.count, 1U);
    context.step_done();
    context.mark_step();
    context.mark_step();
    EXPECT_EQ(context.stats().step.count, 2U);
    context.step_done();
    EXPECT_EQ(context.stats().step.count, 3U);
  });
}

TEST_P(MetricsAt, TheStatisticsAreJson) {
  expect_run(GetParam(), [](Context& context) {
    Step step(context);
    for (int i = 0; i < 12; ++i) {
      step.run();
      context.mark_step();
    }
    const Stats stats = context.stats();
    const json parsed = json::parse(to_json(stats));
    EXPECT_EQ(parsed.at("submitted"), stats.submitted);
    EXPECT_EQ(parsed.at("completed"), 12 * kTensors);
    EXPECT_EQ(parsed.at("schedule_hits"), stats.schedule_hits);
    EXPECT_EQ(parsed.at("bytes"), stats.bytes);
    EXPECT_EQ(parsed.at("step").at("count"), 11) << "steps are between marks";
    EXPECT_EQ(parsed.at("step").at("last").at("operations"), kTensors);
    EXPECT_NEAR(parsed.at("step").at("last").at("duration_seconds").get<double>(),
                std::chrono::duration<double>(stats.step.last.duration).count(), 1e-8);
    EXPECT_NEAR(parsed.at("exposed_seconds").get<double>(),
                std::chrono::duration<double>(stats.exposed).count(), 1e-8);
  });
}

// ---- the log

TEST(Log, RankZeroPrintsItsDecisions) {
  testing::internal::CaptureStderr();
  expect_run(
      2,
      [](Context& context) {
        Step(context).run(20);
        const ProcessSet both = context.add_process_set({0, 1});
        context.remove_process_set(both);
        std::vector<float> data(static_cast<std::size_t>(1 + context.rank()));
        EXPECT_THROW(allreduce(std::span(data), {.name = "unequal", .context = &context}), Error);
        static_cast<void>(context.join());
      },
      [](Config& config) { config.log_level = LogLevel::debug; });
  set_log_level(LogLevel::warn);
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* const decision : {"runs 'g0'", "freezes a schedule of ", "thaws the schedule",
                                     "makes process set 1 of ranks 0-1", "removes process set 1",
                                     "rejects 'unequal' in process set 0: ", "ends the join"}) {
    EXPECT_THAT(log, HasSubstr(decision));
  }
}

}  // namespace
}  // namespace hvd
