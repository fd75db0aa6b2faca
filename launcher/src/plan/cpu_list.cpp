#include "plan/cpu_list.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <hvd/core/internal/text.hpp>

namespace hvd::launcher {

std::string cpu_list(const Cpus& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += last == i ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

std::optional<Cpus> parse_cpu_list(std::string_view text) {
  constexpr int kMost = 65'535;
  if (text.ends_with('\n')) text.remove_suffix(1);
  Cpus cpus;
  if (text.empty()) return cpus;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto comma = std::min(text.find(',', begin), text.size());
    const std::string_view range = text.substr(begin, comma - begin);
    const auto dash = range.find('-');
    const auto first = detail::to_number<int>(range.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : detail::to_number<int>(range.substr(dash + 1));
    const int least = cpus.empty() ? 0 : cpus.back() + 1;
    if (!first || !last || *first < least || *last < *first || *last > kMost) return std::nullopt;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    begin = comma + 1;
  }
  return cpus;
}

}  // namespace hvd::launcher
