#include "cost/choose.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace hvd {

std::size_t best(const Sample& sample, std::span<const ContenderWay> contenders,
                 const Ways& defaults) {
  const auto is_default = [&](const ContenderWay& one) {
    return one.way == defaults.at(sample.bytes);
  };
  const auto usual = static_cast<std::size_t>(
      std::find_if(contenders.begin(), contenders.end(), is_default) - contenders.begin());
  const auto fastest = static_cast<std::size_t>(
      std::min_element(sample.times.begin(), sample.times.end()) - sample.times.begin());
  return sample.times[fastest] <= kClearly * sample.times[usual] ? fastest : usual;
}

Ways choose(OpKind kind, std::span<const Sample> samples, std::span<const ContenderWay> contenders,
            const Ways& defaults) {
  std::vector<Sample> sorted;
  for (const Sample& sample : samples) {
    if (sample.kind == kind) sorted.push_back(sample);
  }
  if (sorted.empty()) return defaults;
  std::sort(sorted.begin(), sorted.end(),
            [](const Sample& a, const Sample& b) { return a.bytes < b.bytes; });
  const auto chosen = [&](const Sample& sample) {
    return contenders[best(sample, contenders, defaults)];
  };
  const ContenderWay first = chosen(sorted.front());
  Ways ways(first.way, first.segment);
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const ContenderWay next = chosen(sorted[i]);
    const double middle =
        std::sqrt(static_cast<double>(sorted[i - 1].bytes) * static_cast<double>(sorted[i].bytes));
    ways.from(static_cast<std::size_t>(std::ceil(middle)), next.way, next.segment);
  }
  return ways;
}

std::string describe(const Sample& sample, std::span<const ContenderWay> contenders,
                     const Ways& defaults) {
  std::string text = fmt::format("{} {} B:", to_string(sample.kind), sample.bytes);
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    text += fmt::format("{} {} {:.1f} µs", i == 0 ? "" : ",", to_string(contenders[i].way),
                        sample.times[i]);
  }
  return text + fmt::format(": {}", to_string(contenders[best(sample, contenders, defaults)].way));
}

}  // namespace hvd
