// hvd_sim runs the protocol under simulated time, network and users. See
// docs/internals/simulator.md.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "elastic/simulation.hpp"
#include "scale.hpp"
#include "simulation.hpp"
#include "totals.hpp"

namespace {

using namespace hvd::sim;

struct Options {
  std::uint64_t seeds = 1000;
  std::uint64_t first_seed = 1;
  Shape shape;
  bool verbose = false;
  bool scale = false;
  bool elastic = false;
  int at_once = 0;
  std::string json;
};

constexpr std::string_view kUsage =
    "usage: hvd_sim [--seeds N] [--first-seed S] [--ranks 1..30] [--fanout 0..30] [--verbose]\n"
    "       hvd_sim --elastic [--seeds N] [--first-seed S] [--ranks 1..8] [--verbose]\n"
    "       hvd_sim --scale [--ranks N] [--fanout N] [--at-once 1..161] [--json FILE]\n";

std::optional<Options> parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view option = arguments[i];
    if (option == "--verbose") {
      options.verbose = true;
      continue;
    }
    if (option == "--elastic") {
      options.elastic = true;
      continue;
    }
    if (option == "--scale") {
      options.scale = true;
      continue;
    }
    if (i + 1 == count) return std::nullopt;
    const std::string argument = arguments[++i];
    if (option == "--json") {
      options.json = argument;
      continue;
    }
    const std::uint64_t value = std::stoull(argument);
    if (option == "--seeds") {
      options.seeds = value;
    } else if (option == "--first-seed") {
      options.first_seed = value;
    } else if (option == "--ranks" && value >= 1 && value <= 131'072) {
      options.shape.ranks = static_cast<int>(value);
    } else if (option == "--at-once" && value >= 1 && value <= 161) {
      options.at_once = static_cast<int>(value);
    } else if (option == "--fanout" && value <= 65'536) {
      options.shape.fanout = static_cast<int>(value);
    } else {
      return std::nullopt;
    }
  }
  if (!options.scale && options.shape.ranks > 30) return std::nullopt;
  if (options.elastic && (options.shape.ranks > 8 || options.shape.fanout)) return std::nullopt;
  return options;
}

int scale(const Options& options) {
  std::vector<int> sizes{64, 1024, 4096};
  if (options.shape.ranks > 0) sizes = {options.shape.ranks};
  std::vector<ScaleRow> rows;
  for (const int ranks : sizes) {
    std::vector<int> fanouts{ranks, 0};  // a star and what jobs get
    if (options.shape.fanout) fanouts = {*options.shape.fanout};
    for (const int fanout : fanouts) {
      std::vector<int> sizes_of_messages{161, 16, 1};
      if (options.at_once > 0) sizes_of_messages = {options.at_once};
      for (const int at_once : sizes_of_messages) {
        rows.push_back(measure_scale({ranks, fanout, at_once}));
        // Without combining rank 0 gets as many messages as in a star, so the largest jobs omit it.
        if (rows.back().levels < 2 || ranks > 65'536) continue;
        rows.push_back(measure_scale({ranks, fanout, at_once, 3, false}));
      }
    }
  }
  fmt::print("{}", scale_table(rows));
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << scale_json(rows);
    if (!file.flush()) throw std::runtime_error(options.json + ": cannot be written");
  }
  return 0;
}

int run(const Options& options) {
  const auto began = std::chrono::steady_clock::now();
  Totals totals;
  for (std::uint64_t seed = options.first_seed; seed < options.first_seed + options.seeds; ++seed) {
    const Outcome outcome = simulate(seed, options.shape, options.verbose);
    totals.add(outcome);
    if (outcome.violation.empty()) continue;
    fmt::print(
        "seed {} (after {}) breaks: {}\nrepeat it with: hvd_sim --first-seed {} --seeds 1{}{} "
        "--verbose\n",
        seed, totals.seeds, outcome.violation, seed,
        options.shape.ranks > 0 ? fmt::format(" --ranks {}", options.shape.ranks) : "",
        options.shape.fanout ? fmt::format(" --fanout {}", *options.shape.fanout) : "");
    return 1;
  }
  fmt::print("{}", totals.text(std::chrono::steady_clock::now() - began));
  if (options.shape.ranks == 0 && !options.shape.fanout && options.seeds >= 10'000 &&
      !totals.missing().empty()) {
    fmt::print("never happened:{}\n", totals.missing());
    return 1;
  }
  return 0;
}

int run_elastic(const Options& options) {
  const auto began = std::chrono::steady_clock::now();
  elastic::Totals totals;
  for (std::uint64_t seed = options.first_seed; seed < options.first_seed + options.seeds; ++seed) {
    const auto outcome = elastic::simulate(seed, options.shape.ranks, options.verbose);
    totals.add(outcome);
    if (outcome.violation.empty()) continue;
    fmt::print(
        "seed {} (after {}) breaks: {}\nrepeat it with: hvd_sim --elastic --first-seed {} --seeds "
        "1{} "
        "--verbose\n",
        seed, totals.seeds, outcome.violation, seed,
        options.shape.ranks > 0 ? fmt::format(" --ranks {}", options.shape.ranks) : "");
    return 1;
  }
  fmt::print("{}", totals.text(std::chrono::steady_clock::now() - began));
  if (options.seeds < 10'000 || totals.missing().empty()) return 0;
  fmt::print("never happened:{}\n", totals.missing());
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (const auto options = parse(count, arguments)) {
      if (options->elastic) return run_elastic(*options);
      return options->scale ? scale(*options) : run(*options);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "hvd_sim: {}\n", error.what());
  }
  fmt::print(stderr, "{}", kUsage);
  return 64;
}
