#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/recovery.hpp>

namespace hvd::detail {
namespace {

/// Returns the first rank that is furthest, by a comparison of standings.
template <class IsSource, class IsFurther>
std::optional<int> furthest(const std::vector<Standing>& all, IsSource is_source,
                            IsFurther is_further) {
  std::optional<int> best;
  for (int rank = 0; rank < std::ssize(all); ++rank) {
    const Standing& one = all[static_cast<std::size_t>(rank)];
    if (!is_source(one)) continue;
    if (!best || is_further(one, all[static_cast<std::size_t>(*best)])) best = rank;
  }
  return best;
}

}  // namespace

StateSource choose_source(const std::vector<Standing>& standings) {
  const auto live = furthest(
      standings, [](const Standing& one) { return one.is_sound(); },
      [](const Standing& one, const Standing& best) {
        return std::pair(one.steps, one.iterations) > std::pair(best.steps, best.iterations);
      });
  if (live) return {.rank = *live};
  const auto committed = furthest(
      standings, [](const Standing& one) { return one.commits > 0; },
      [](const Standing& one, const Standing& best) { return one.commits > best.commits; });
  if (committed) return {.rank = *committed, .from_commit = true};
  if (std::all_of(standings.begin(), standings.end(),
                  [](const Standing& one) { return one.kind == Standing::fresh; })) {
    return {};
  }
  throw Error(Errc::unsupported,
              "ElasticState: ranks were lost, no rank that is left has a state to go on from, and "
              "there was no commit()");
}

}  // namespace hvd::detail
