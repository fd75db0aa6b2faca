// Converts `Stats` to JSON and to Prometheus text. The functions have no side effects.
#include <array>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/stats.hpp>

#include "observe/json_text.hpp"
#include "observe/stats_fields.hpp"

namespace hvd {
namespace {

using observe::kStatsCounts;
using observe::kStatsTimes;
using observe::kStepCounts;
using observe::kStepTimes;

using NamedSample = std::pair<std::string_view, StepSample StepStats::*>;
constexpr std::array<NamedSample, 4> kSamples{{
    {"last", &StepStats::last},
    {"mean", &StepStats::mean},
    {"p50", &StepStats::p50},
    {"p99", &StepStats::p99},
}};

// Prints all digits, which a double would round.
std::string seconds(std::chrono::nanoseconds time) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const std::int64_t count = time.count();
  return fmt::format("{}{}.{:09}", count < 0 ? "-" : "", std::abs(count / kSecond),
                     std::abs(count % kSecond));
}

std::string json_of(const StepSample& sample) {
  std::string text;
  auto out = std::back_inserter(text);
  for (const auto& field : kStepTimes) {
    fmt::format_to(out, R"({}"{}_seconds":{})", text.empty() ? "" : ",", field.name,
                   seconds(sample.*field.value));
  }
  for (const auto& field : kStepCounts) {
    fmt::format_to(out, R"(,"{}":{})", field.name, sample.*field.value);
  }
  return fmt::format("{{{}}}", text);
}

void family(std::string& to, std::string_view name, std::string_view type, std::string_view help) {
  fmt::format_to(std::back_inserter(to), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void single(std::string& to, std::string_view type, const std::string& name,
            std::string_view labels, std::string_view help, std::string_view value) {
  family(to, name, type, help);
  fmt::format_to(std::back_inserter(to), "{}{{{}}} {}\n", name, labels, value);
}

std::string labels_text(const MetricLabels& labels) {
  std::string text = "job=";
  observe::append_label_value(text, labels.job);
  text += ",host=";
  observe::append_label_value(text, labels.host);
  fmt::format_to(std::back_inserter(text), ",rank=\"{}\"", labels.rank);
  return text;
}

std::string number(std::uint64_t value) { return fmt::format("{}", value); }
std::string number(std::chrono::nanoseconds value) { return seconds(value); }

template <class Field>
void step_gauge(std::string& to, const std::string& name, std::string_view labels,
                const StepStats& step, const Field& field) {
  family(to, name, "gauge", fmt::format("{} Per step, over the last 100.", field.help));
  for (const NamedSample& sample : kSamples) {
    fmt::format_to(std::back_inserter(to), "{}{{{},stat=\"{}\"}} {}\n", name, labels, sample.first,
                   number(step.*sample.second.*field.value));
  }
}

}  // namespace

std::string to_json(const Stats& stats) {
  std::string text = "{";
  auto out = std::back_inserter(text);
  for (const auto& field : kStatsCounts) {
    fmt::format_to(out, R"("{}":{},)", field.name, stats.*field.value);
  }
  for (const auto& field : kStatsTimes) {
    fmt::format_to(out, R"("{}_seconds":{},)", field.name, seconds(stats.*field.value));
  }
  fmt::format_to(out, R"("step":{{"count":{},"window":{})", stats.step.count, stats.step.window);
  for (const NamedSample& sample : kSamples) {
    fmt::format_to(out, R"(,"{}":{})", sample.first, json_of(stats.step.*sample.second));
  }
  fmt::format_to(out, R"(}},"slowest_rank":{},"slowest_cost_seconds":{}}})", stats.slowest_rank,
                 seconds(stats.slowest_cost));
  return text;
}

std::string to_prometheus(const Stats& stats, const MetricLabels& labels) {
  const std::string own = labels_text(labels);
  std::string text;
  for (const auto& field : kStatsCounts) {
    single(text, "counter", fmt::format("hvd_{}_total", field.metric), own, field.help,
           number(stats.*field.value));
  }
  for (const auto& field : kStatsTimes) {
    single(text, "counter", fmt::format("hvd_{}_seconds_total", field.metric), own, field.help,
           number(stats.*field.value));
  }
  single(text, "counter", "hvd_steps_total", own, "Steps marked.", number(stats.step.count));
  single(text, "gauge", "hvd_slowest_rank", own, "The rank for which all others wait; -1 for none.",
         fmt::format("{}", stats.slowest_rank));
  single(text, "gauge", "hvd_slowest_cost_seconds", own,
         "Time of each step for which they wait for it.", number(stats.slowest_cost));
  for (const auto& field : kStepTimes) {
    step_gauge(text, fmt::format("hvd_step_{}_seconds", field.name), own, stats.step, field);
  }
  for (const auto& field : kStepCounts) {
    step_gauge(text, fmt::format("hvd_step_{}", field.name), own, stats.step, field);
  }
  return text;
}

}  // namespace hvd
