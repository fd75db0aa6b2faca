#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "commands.hpp"
#include "trace_file.hpp"

namespace hvd::trace {
namespace {

using nlohmann::json;

struct Phase {
  std::uint64_t events = 0;
  double total_ns = 0;
  std::int64_t longest_ns = 0;
  std::uint64_t bytes = 0;
  std::map<int, double> ns_of_rank;

  void add(int rank, std::int64_t ns, std::uint64_t event_bytes) {
    ++events;
    total_ns += static_cast<double>(ns);
    longest_ns = std::max(longest_ns, ns);
    bytes += event_bytes;
    ns_of_rank[rank] += static_cast<double>(ns);
  }
  /// Returns the rank with the most time, or the lowest of several such ranks.
  [[nodiscard]] int busiest_rank() const {
    const auto shorter = [](const auto& a, const auto& b) { return a.second < b.second; };
    return std::max_element(ns_of_rank.begin(), ns_of_rank.end(), shorter)->first;
  }
};

/// Returns a count that an event may lack.
std::uint64_t count_in(const json& args, const char* key) {
  if (!args.is_object()) throw std::runtime_error("args is no object");
  return args.contains(key) ? whole_number<std::uint64_t>(args, key) : 0;
}

std::string line_of(const std::string& name, const Phase& phase) {
  return fmt::format(
      "{:<32} {:>9} {:>12.3f} {:>11.1f} {:>11.1f} {:>15} {:>5}\n", name, phase.events,
      phase.total_ns / 1e6, phase.total_ns / 1e3 / static_cast<double>(phase.events),
      static_cast<double>(phase.longest_ns) / 1e3, phase.bytes, phase.busiest_rank());
}

}  // namespace

std::string summarize(const std::vector<std::string>& files) {
  std::map<std::string, Phase> phases;
  std::map<int, std::uint64_t> dropped;
  for (const std::string& path : files) {
    for_each_event(path, [&](const json& event, const Origin& origin) {
      const std::string kind = event.value("ph", "");
      if (kind != "X" && kind != "i") return;
      const json& args = event.at("args");
      if (kind == "i") {
        dropped[origin.rank] += count_in(args, "dropped");
      } else {
        phases[event.at("name").get<std::string>()].add(origin.rank, nanoseconds_in(event, "dur"),
                                                        count_in(args, "bytes"));
      }
    });
  }

  std::vector<std::pair<std::string, Phase>> ordered(phases.begin(), phases.end());
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.second.total_ns > b.second.total_ns;
  });
  std::string text = fmt::format("{:<32} {:>9} {:>12} {:>11} {:>11} {:>15} {:>5}\n", "phase",
                                 "events", "total_ms", "mean_us", "max_us", "bytes", "most");
  for (const auto& [name, phase] : ordered) text += line_of(name, phase);
  for (const auto& [rank, events] : dropped) {
    if (events > 0) text += fmt::format("rank {} dropped {} events\n", rank, events);
  }
  return text;
}

}  // namespace hvd::trace
