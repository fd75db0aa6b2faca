#include "cost/ways.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd {
namespace {

constexpr std::array<std::string_view, kWayCount> kNames{"collective", "ring",    "doubling",
                                                         "flat",       "leaders", "lanes"};

[[noreturn]] void reject(std::string_view text, std::string_view expected) {
  throw Error(Errc::invalid_argument, fmt::format("'{}': expected {}", text, expected));
}

std::size_t parse_bytes(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) reject(text, "a number of bytes");
  return value;
}

Way parse_way(std::string_view text) {
  const auto found = std::find(kNames.begin(), kNames.end(), text);
  if (found == kNames.end()) reject(text, "the name of an algorithm");
  return static_cast<Way>(found - kNames.begin());
}

}  // namespace

std::string_view to_string(Way way) noexcept { return kNames[static_cast<std::size_t>(way)]; }

Ways& Ways::from(std::size_t bytes, Way way, std::size_t segment) {
  if (bytes <= steps_.back().from) reject(std::to_string(bytes), "ascending sizes");
  if (steps_.back().way != way || steps_.back().segment != segment) {
    steps_.push_back({bytes, way, segment});
  }
  return *this;
}

const Ways::Step& Ways::step(std::size_t bytes) const noexcept {
  const auto after = std::find_if(steps_.begin(), steps_.end(),
                                  [&](const Step& step) { return step.from > bytes; });
  return *(after - 1);
}

bool Ways::uses(Way way) const noexcept {
  return std::any_of(steps_.begin(), steps_.end(),
                     [&](const Step& step) { return step.way == way; });
}

std::string Ways::text() const {
  std::string text;
  for (const Step& step : steps_) {
    if (step.from > 0) text += fmt::format(",{}:", step.from);
    text += to_string(step.way);
    if (step.segment > 0) text += fmt::format("/{}", step.segment);
  }
  return text;
}

Ways Ways::parse(std::string_view text) {
  std::vector<Step> steps;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    Step step;
    if (const std::size_t colon = item.find(':'); colon != std::string_view::npos) {
      step.from = parse_bytes(item.substr(0, colon));
      item.remove_prefix(colon + 1);
    }
    if (const std::size_t slash = item.find('/'); slash != std::string_view::npos) {
      step.segment = parse_bytes(item.substr(slash + 1));
      item = item.substr(0, slash);
    }
    step.way = parse_way(item);
    if (steps.empty() != (step.from == 0) || (!steps.empty() && step.from <= steps.back().from)) {
      reject(text, "a way for all sizes, then others from ascending sizes on");
    }
    steps.push_back(step);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  Ways ways(Way::ring);
  ways.steps_ = std::move(steps);
  return ways;
}

}  // namespace hvd
