// Explores the shared-memory protocols of the host engine, as they are and with each memory order
// weakened by one step.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "programs.hpp"
#include "source_lines.hpp"

namespace hvd::weak {
namespace {

/// Returns all source files of the protocols, below ops/src.
std::vector<std::string> files() {
  const std::filesystem::path root(HVD_OPS_SOURCE);
  std::vector<std::string> found;
  for (const char* folder : {"fence", "host", "shm", "transport"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file()) found.push_back(entry.path().lexically_relative(root).string());
    }
  }
  return found;
}

std::string name_of(Site::Kind kind) {
  switch (kind) {
    case Site::Kind::load:
      return "load";
    case Site::Kind::store:
      return "store";
    case Site::Kind::rmw:
      return "read-modify-write";
    default:
      return "fence";
  }
}

std::string name_of(int order) {
  switch (order) {
    case __ATOMIC_RELAXED:
      return "relaxed";
    case __ATOMIC_ACQUIRE:
      return "acquire";
    case __ATOMIC_RELEASE:
      return "release";
    case __ATOMIC_ACQ_REL:
      return "acq_rel";
    default:
      return "seq_cst";
  }
}

/// Returns the orders that are one step weaker.
std::vector<int> weaker(const Site& site) {
  switch (site.order) {
    case __ATOMIC_SEQ_CST:
      if (site.kind == Site::Kind::load) return {__ATOMIC_ACQUIRE};
      if (site.kind == Site::Kind::store) return {__ATOMIC_RELEASE};
      return {__ATOMIC_ACQ_REL};
    case __ATOMIC_ACQ_REL:
      return {__ATOMIC_ACQUIRE, __ATOMIC_RELEASE};
    case __ATOMIC_ACQUIRE:
    case __ATOMIC_RELEASE:
      return {__ATOMIC_RELAXED};
    default:
      return {};
  }
}

/// The operations of one line of the source. The compiler may have made several instructions of
/// each of them.
using Operations = std::map<std::pair<std::string, int>, std::pair<Site, std::set<const void*>>>;

/// Returns the number in an environment variable, or `otherwise`.
std::uint64_t number_in(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::stoull(text);
}

/// Explores with one deviation more each time, since a short execution shows most faults, until a
/// program fails. Returns what happens then, or nothing.
std::string catch_weaker(const std::vector<Program>& programs, const Mutation& mutation,
                         const Limits& most) {
  for (Limits limits{1, most.executions}; limits.deviations <= most.deviations;
       ++limits.deviations) {
    for (const Program& program : programs) {
      const Exploration result = explore(program, mutation, limits);
      if (!result.failure.empty()) return fmt::format("{} | {}", program.name, result.failure);
    }
  }
  return {};
}

/// Returns the operations of a wrong execution, one on a line.
std::string chart_of(const Exploration& result) {
  Sites sites;
  for (const Event& event : result.events) {
    if (event.site != nullptr) sites.emplace(event.site, Site{});
  }
  const auto lines = lines_of(sites);
  std::string chart;
  for (const Event& event : result.events) {
    const auto line = lines.find(event.site);
    chart += fmt::format("\n{:{}}{} {} {}:{:#x} {} ({})", "", 4 * event.thread, event.thread,
                         event.what, event.location >> 40, event.location & 0xFF'FFFF'FFFFU,
                         event.value, line == lines.end() ? "" : line->second);
  }
  return chart;
}

TEST(Protocols, AreCorrectAndEveryMemoryOrderIsNeeded) {
  const std::vector<Program> programs = protocol_programs();
  const Limits limits{number_in("HVD_WEAK_DEVIATIONS", 2),
                      number_in("HVD_WEAK_EXECUTIONS", 1'000'000)};
  Sites sites;
  for (const Program& program : programs) {
    const Exploration result = explore(program, {}, limits);
    fmt::print("| {} | {} | {} | {} | {} |\n", program.name, limits.deviations, result.executions,
               result.states, result.complete ? "yes" : "no");
    std::fflush(stdout);
    EXPECT_EQ(result.failure, "") << program.name << chart_of(result);
    EXPECT_TRUE(result.complete || !result.failure.empty())
        << program.name << " has more executions than HVD_WEAK_EXECUTIONS";
    sites.insert(result.sites.begin(), result.sites.end());
  }
  if (HasFailure()) return;

  Operations operations;
  std::set<std::string> lines;
  for (const auto& [site, line] : lines_of(sites)) {
    const Site& about = sites.at(site);
    lines.insert(line);
    auto& [of, addresses] = operations[{line, static_cast<int>(about.kind) * 8 + about.order}];
    of = about;
    addresses.insert(site);
  }
  for (const auto& [where, operation] : operations) {
    const auto& [site, addresses] = operation;
    for (const int order : weaker(site)) {
      const std::string caught = catch_weaker(programs, {addresses, order}, limits);
      fmt::print("| {} | {} | {} -> {} | {} |\n", where.first, name_of(site.kind),
                 name_of(site.order), name_of(order), caught.empty() ? "NOT CAUGHT | " : caught);
      std::fflush(stdout);
      EXPECT_NE(caught, "") << where.first;
    }
  }

  // No memory order of the source is left out.
  const std::regex order("memory_order_(acquire|release|acq_rel|seq_cst)");
  for (const std::string& file : files()) {
    std::ifstream source(std::string(HVD_OPS_SOURCE) + file);
    ASSERT_TRUE(source) << file;
    std::string text;
    for (int line = 1; std::getline(source, text); ++line) {
      if (!std::regex_search(text, order)) continue;
      EXPECT_EQ(lines.count(fmt::format("{}:{}", file, line)), 1) << file << ":" << line << text;
    }
  }
}

}  // namespace
}  // namespace hvd::weak
