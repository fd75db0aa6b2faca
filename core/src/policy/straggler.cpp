#include "policy/straggler.hpp"

#include <algorithm>

namespace hvd::detail {

void BlockedTimes::add(const BlockedTimes& others) {
  ranks += others.ranks;
  step = std::max(step, others.step);
  for (BlockedTime time : {others.least, others.second}) {
    if (time.rank < 0) continue;
    if (least.rank < 0 || time.mean < least.mean) std::swap(time, least);
    if (time.rank >= 0 && (second.rank < 0 || time.mean < second.mean)) second = time;
  }
}

Slowest slowest_of(const BlockedTimes& times, int size) {
  constexpr double kLeastShare = 0.1;
  constexpr double kStandardErrors = 6;
  if (size < 2 || times.ranks != static_cast<std::uint32_t>(size)) return {};
  const double cost = times.second.mean - times.least.mean;
  const double variance = times.least.variance + times.second.variance;
  if (cost < kLeastShare * times.step) return {};
  if (cost * cost < kStandardErrors * kStandardErrors * variance) return {};
  return {times.least.rank, cost, times.step};
}

bool SlowestNews::is_news(const Slowest& slowest, Clock::time_point now) {
  if (slowest.rank < 0) return false;
  const auto [last, is_first] = last_.try_emplace(slowest.rank, now);
  if (!is_first && now - last->second < kQuiet) return false;
  last->second = now;
  return true;
}

}  // namespace hvd::detail
