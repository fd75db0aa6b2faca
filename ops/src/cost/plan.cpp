#include "cost/plan.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd {
namespace {

/// Empty for an unknown part.
std::vector<Way> known_ways(std::string_view part) {
  if (part == Plan::kHosts) return {Way::flat, Way::leaders, Way::lanes};
  if (part == Plan::kRing) return {Way::doubling, Way::ring};
  for (const OpKind kind :
       {OpKind::allreduce, OpKind::broadcast, OpKind::allgather, OpKind::reducescatter}) {
    if (part == Plan::mpi(kind)) return {Way::collective, Way::ring};
  }
  return {};
}

void check(std::string_view part, const Ways& ways) {
  const std::vector<Way> known = known_ways(part);
  if (known.empty()) {
    throw Error(Errc::invalid_argument, fmt::format("'{}': no part of a plan", part));
  }
  for (int i = 0; i < kWayCount; ++i) {
    const auto way = static_cast<Way>(i);
    if (!ways.uses(way) || std::find(known.begin(), known.end(), way) != known.end()) continue;
    throw Error(Errc::invalid_argument,
                fmt::format("'{}' is no way of '{}'", to_string(way), part));
  }
}

}  // namespace

std::string Plan::mpi(OpKind kind) { return fmt::format("mpi/{}", to_string(kind)); }

Plan& Plan::set(std::string_view part, Ways ways) {
  parts_.insert_or_assign(std::string(part), std::move(ways));
  return *this;
}

Ways Plan::of(std::string_view part, const Ways& otherwise) const {
  const auto found = parts_.find(part);
  return found == parts_.end() ? otherwise : found->second;
}

Plan Plan::over(const Plan& defaults) const {
  Plan merged;
  for (const auto& [part, ways] : defaults.parts_) merged.set(part, of(part, ways));
  return merged;
}

std::string Plan::text() const {
  std::string text;
  for (const auto& [part, ways] : parts_) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", part, ways.text());
  }
  return text;
}

Plan Plan::parse(std::string_view text) {
  Plan plan;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    if (item.empty()) continue;
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      throw Error(Errc::invalid_argument, fmt::format("'{}': expected PART=WAYS", item));
    }
    const std::string_view part = item.substr(0, equals);
    Ways ways = Ways::parse(item.substr(equals + 1));
    check(part, ways);
    plan.set(part, std::move(ways));
  }
  return plan;
}

}  // namespace hvd
