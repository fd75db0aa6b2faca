// hvd_explore searches every interleaving of a bounded program on the product's own protocol
// objects. See docs/internals/exploration.md.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "explorer.hpp"

namespace {

using namespace hvd::explore;

constexpr std::string_view kUsage =
    "usage: hvd_explore CONFIGURATION [--ranks 2|3] [--states N] [--resume FILE] [--walks N]\n"
    "       hvd_explore --list\n";

struct Options {
  std::string configuration;
  int ranks = 3;
  std::uint64_t states = 1'000'000;
  std::string file;
  int walks = 64;
};

std::optional<Options> parse(int count, char** arguments) {
  Options options;
  try {
    for (int i = 1; i < count; ++i) {
      const std::string_view option = arguments[i];
      if (!option.starts_with("--")) {
        if (!options.configuration.empty()) return std::nullopt;
        options.configuration = option;
        continue;
      }
      if (i + 1 == count) return std::nullopt;
      const std::string value = arguments[++i];
      if (option == "--resume") {
        options.file = value;
      } else if (option == "--states") {
        options.states = std::stoull(value);
      } else if (option == "--ranks") {
        options.ranks = std::stoi(value);
      } else if (option == "--walks") {
        options.walks = std::stoi(value);
      } else {
        return std::nullopt;
      }
    }
  } catch (const std::exception&) {
    return std::nullopt;
  }
  if (options.configuration.empty() || options.walks < 1) return std::nullopt;
  return options;
}

int explore(const Options& options, Scenario scenario) {
  const auto began = std::chrono::steady_clock::now();
  Explorer explorer(std::move(scenario), options.walks);
  if (!options.file.empty() && explorer.load(options.file)) {
    fmt::print("resumes with {} states\n", explorer.visited().size());
  }
  constexpr std::uint64_t kPart = 2'000'000;  // states between two times that the file is written
  std::optional<Counterexample> found;
  while (!found && !explorer.complete() && explorer.visited().size() < options.states) {
    found = explorer.run(std::min(options.states, explorer.visited().size() + kPart));
    if (!found && !options.file.empty()) explorer.save(options.file);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  fmt::print(
      "{} {} ranks: {} states, {} transitions, depth {}, {} ends, {:.1f} s, {}, set {:016x}\n",
      options.configuration, options.ranks, explorer.visited().size(),
      explorer.counts().transitions, explorer.counts().depth, explorer.counts().ends,
      seconds.count(), explorer.complete() ? "complete" : "not complete", explorer.visited().sum());
  if (!found) return 0;
  const Counterexample shortest = shortened(explorer.scenario(), *found);
  fmt::print("{}", chart_of(explorer.scenario(), shortest));
  return 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2 && std::string_view(arguments[1]) == "--list") {
    for (const std::string& name : configurations()) fmt::print("{}\n", name);
    return 0;
  }
  const std::optional<Options> options = parse(count, arguments);
  std::optional<Scenario> scenario;
  if (options) scenario = make_scenario(options->configuration, options->ranks);
  if (!scenario) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  try {
    return explore(*options, *std::move(scenario));
  } catch (const std::exception& error) {
    fmt::print(stderr, "hvd_explore: {}\n", error.what());
    return 2;
  }
}
