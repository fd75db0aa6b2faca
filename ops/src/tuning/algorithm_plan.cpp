#include "tuning/algorithm_plan.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>

namespace hvd::detail {
namespace {

constexpr std::array<std::string_view, kAlgorithmCount> kNames{"collective", "ring",    "doubling",
                                                               "flat",       "leaders", "lanes"};

[[noreturn]] void reject(std::string_view text, std::string_view expected) {
  throw Error(Errc::invalid_argument, fmt::format("'{}': expected {}", text, expected));
}

std::size_t parse_bytes(std::string_view text) {
  const auto value = to_number<std::int64_t>(text);  // segments are cut with signed sizes
  if (!value || *value < 0) reject(text, "a number of bytes");
  return static_cast<std::size_t>(*value);
}

Algorithm parse_algorithm(std::string_view text) {
  const auto found = std::find(kNames.begin(), kNames.end(), text);
  if (found == kNames.end()) reject(text, "the name of an algorithm");
  return static_cast<Algorithm>(found - kNames.begin());
}

/// Removes and returns what comes before the first `separator`.
std::string_view take(std::string_view& text, char separator) {
  const std::string_view item = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), item.size() + 1));
  return item;
}

/// Returns the algorithms among which a part may choose, or none for an unknown part.
std::vector<Algorithm> algorithms_of(std::string_view part) {
  if (part == AlgorithmPlan::kHosts) return {Algorithm::flat, Algorithm::leaders, Algorithm::lanes};
  if (part == AlgorithmPlan::kRing) return {Algorithm::doubling, Algorithm::ring};
  for (const OpKind kind :
       {OpKind::allreduce, OpKind::broadcast, OpKind::allgather, OpKind::reducescatter}) {
    if (part == AlgorithmPlan::mpi(kind)) return {Algorithm::collective, Algorithm::ring};
  }
  return {};
}

void check(std::string_view part, const AlgorithmTable& table) {
  const std::vector<Algorithm> known = algorithms_of(part);
  if (known.empty()) {
    throw Error(Errc::invalid_argument, fmt::format("'{}': no part of a plan", part));
  }
  for (int i = 0; i < kAlgorithmCount; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    if (!table.uses(algorithm)) continue;
    if (std::find(known.begin(), known.end(), algorithm) != known.end()) continue;
    throw Error(Errc::invalid_argument,
                fmt::format("'{}' is no algorithm of '{}'", to_string(algorithm), part));
  }
}

/// Returns the plan of a line of the file if it is that of `signature`.
std::optional<std::string_view> plan_in(std::string_view line, std::string_view signature) {
  if (!line.starts_with(signature) || line.substr(signature.size(), 1) != " ") return std::nullopt;
  return line.substr(signature.size() + 1);
}

[[noreturn]] void fail(const std::string& path, int reason) {
  throw Error(Errc::resource, fmt::format("{}: {}", path, std::strerror(reason)));
}

/// Returns the lines of a file, or none where there is no file. Throws Errc::resource when it
/// cannot be read.
std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  errno = 0;
  std::ifstream file(path);
  if (!file && errno == ENOENT) return lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  if (!file.eof()) fail(path, errno);
  return lines;
}

}  // namespace

std::string_view to_string(Algorithm algorithm) noexcept {
  return kNames[static_cast<std::size_t>(algorithm)];
}

AlgorithmTable& AlgorithmTable::from(std::size_t bytes, Algorithm algorithm, std::size_t segment) {
  if (bytes <= entries_.back().from) reject(std::to_string(bytes), "ascending sizes");
  if (entries_.back().algorithm != algorithm || entries_.back().segment != segment) {
    entries_.push_back({bytes, algorithm, segment});
  }
  return *this;
}

const AlgorithmTable::Entry& AlgorithmTable::entry(std::size_t bytes) const noexcept {
  const auto after = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.from > bytes; });
  return *(after - 1);
}

bool AlgorithmTable::uses(Algorithm algorithm) const noexcept {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.algorithm == algorithm; });
}

std::string AlgorithmTable::text() const {
  std::string text;
  for (const Entry& entry : entries_) {
    if (entry.from > 0) text += fmt::format(",{}:", entry.from);
    text += to_string(entry.algorithm);
    if (entry.segment > 0) text += fmt::format("/{}", entry.segment);
  }
  return text;
}

AlgorithmTable AlgorithmTable::parse(std::string_view text) {
  std::vector<Entry> entries;
  for (std::string_view rest = text;;) {
    const bool last = rest.find(',') == std::string_view::npos;
    std::string_view item = take(rest, ',');
    Entry entry;
    if (item.find(':') != std::string_view::npos) entry.from = parse_bytes(take(item, ':'));
    const bool cuts = item.find('/') != std::string_view::npos;
    entry.algorithm = parse_algorithm(take(item, '/'));
    if (cuts) entry.segment = parse_bytes(item);
    if (entries.empty() ? entry.from != 0 : entry.from <= entries.back().from) {
      reject(text, "an algorithm for all sizes, then others from ascending sizes on");
    }
    entries.push_back(entry);
    if (last) break;
  }
  AlgorithmTable table(Algorithm::ring);
  table.entries_ = std::move(entries);
  return table;
}

std::string AlgorithmPlan::mpi(OpKind kind) { return fmt::format("mpi/{}", to_string(kind)); }

AlgorithmPlan& AlgorithmPlan::set(std::string_view part, AlgorithmTable table) {
  parts_.insert_or_assign(std::string(part), std::move(table));
  return *this;
}

AlgorithmTable AlgorithmPlan::of(std::string_view part, const AlgorithmTable& otherwise) const {
  const auto found = parts_.find(part);
  return found == parts_.end() ? otherwise : found->second;
}

AlgorithmPlan AlgorithmPlan::over(const AlgorithmPlan& defaults) const {
  AlgorithmPlan merged;
  for (const auto& [part, table] : defaults.parts_) merged.set(part, of(part, table));
  return merged;
}

std::string AlgorithmPlan::text() const {
  std::string text;
  for (const auto& [part, table] : parts_) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", part, table.text());
  }
  return text;
}

AlgorithmPlan AlgorithmPlan::parse(std::string_view text) {
  AlgorithmPlan plan;
  while (!text.empty()) {
    std::string_view item = take(text, ' ');
    if (item.empty()) continue;
    if (item.find('=') == std::string_view::npos) reject(item, "PART=ALGORITHMS");
    const std::string_view part = take(item, '=');
    AlgorithmTable table = AlgorithmTable::parse(item);
    check(part, table);
    plan.set(part, std::move(table));
  }
  return plan;
}

std::optional<AlgorithmPlan> load_plan(const std::string& path, std::string_view signature) {
  for (const std::string& line : lines_of(path)) {
    const auto text = plan_in(line, signature);
    if (!text) continue;
    try {
      return AlgorithmPlan::parse(*text);
    } catch (const Error& error) {
      throw Error(Errc::invalid_argument, fmt::format("{}: {}", path, error.what()));
    }
  }
  return std::nullopt;
}

void save_plan(const std::string& path, std::string_view signature, const AlgorithmPlan& plan) {
  const std::vector<std::string> lines = lines_of(path);
  const std::string temporary = fmt::format("{}.{}", path, ::getpid());
  std::ofstream file(temporary);
  for (const std::string& line : lines) {
    if (!plan_in(line, signature)) file << line << '\n';
  }
  file << signature << ' ' << plan.text() << '\n';
  file.close();  // so that all writes have succeeded, or failed
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    static_cast<void>(std::remove(temporary.c_str()));
    fail(path, reason);
  }
}

}  // namespace hvd::detail
