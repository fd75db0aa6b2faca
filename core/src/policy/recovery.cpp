#include <algorithm>
#include <iterator>
#include <limits>
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

/// Returns what this rank has of a division, or null.
const Division* find(const Divisions& of_rank, std::int64_t number) {
  const auto at = std::find_if(of_rank.begin(), of_rank.end(),
                               [&](const Division& one) { return one.number == number; });
  return at == of_rank.end() ? nullptr : &*at;
}

/// Sets who has the shards of a division. `division` of the result is 0 when one of them is lost.
StateSource shards_of(std::int64_t number, const std::vector<Divisions>& all) {
  StateSource source;
  std::int64_t ranks = 0;
  for (const Divisions& of_rank : all) {
    const Division* const has = find(of_rank, number);
    if (has == nullptr) continue;
    ranks = has->ranks;
    source.division_steps = std::max(source.division_steps, has->steps);
  }
  std::vector<std::optional<ShardSource>> found(static_cast<std::size_t>(ranks));
  const auto shard = [&](std::int64_t rank) -> auto& {
    return found[static_cast<std::size_t>((rank + ranks) % ranks)];
  };
  for (const bool is_mirror : {true, false}) {  // the owner's shard is preferred to its mirror
    for (int rank = 0; rank < std::ssize(all); ++rank) {
      const Division* const has = find(all[static_cast<std::size_t>(rank)], number);
      if (has == nullptr || !has->reaches(source.division_steps)) continue;
      shard(has->rank - (is_mirror ? 1 : 0)) = {rank, is_mirror};
    }
  }
  for (const auto& one : found) {
    if (!one) return {.division_steps = source.division_steps};
    source.shards.push_back(*one);
  }
  source.division = number;
  return source;
}

/// Returns the newest number below `limit`, or 0.
std::int64_t newest_below(std::int64_t limit, const std::vector<Divisions>& all) {
  std::int64_t newest = 0;
  for (const Divisions& of_rank : all) {
    for (const Division& one : of_rank) {
      if (one.number < limit) newest = std::max(newest, one.number);
    }
  }
  return newest;
}

/// Finds a division of which no shard is lost. A division in which no step was made has the same
/// state as the one that it was made of, which ranks keep until they have made the first step.
/// `shards_lost` of the result says whether there are divisions and none of them is whole.
StateSource find_division(const std::vector<Divisions>& all) {
  const std::int64_t newest = newest_below(std::numeric_limits<std::int64_t>::max(), all);
  if (newest == 0) return {};
  StateSource source = shards_of(newest, all);
  // The first division is made of nothing: its optimizers have not begun.
  if (newest == 1 && source.division_steps == 0) return {};
  if (source.division != 0) return source;
  if (source.division_steps > 0) return {.shards_lost = true};
  const std::int64_t before = newest_below(newest, all);
  source = before == 0 ? StateSource{} : shards_of(before, all);
  source.shards_lost = source.division == 0;
  return source;
}

/// Returns the first rank whose state is sound and furthest.
std::optional<int> live_source(const std::vector<Standing>& standings) {
  return furthest(
      standings, [](const Standing& one) { return one.is_sound(); },
      [](const Standing& one, const Standing& best) {
        return std::pair(one.steps, one.iterations) > std::pair(best.steps, best.iterations);
      });
}

StateSource source_without_live(const std::vector<Standing>& standings) {
  const auto committed = furthest(
      standings, [](const Standing& one) { return one.commits > 0; },
      [](const Standing& one, const Standing& best) { return one.commits > best.commits; });
  if (committed) return {.rank = *committed, .from_commit = true};
  if (std::all_of(standings.begin(), standings.end(),
                  [](const Standing& one) { return one.kind == Standing::fresh; })) {
    return {};
  }
  throw Error(Errc::unsupported,
              "ElasticState: ranks were lost, those that are left do not have the whole state, and "
              "there was no commit()");
}

}  // namespace

StateSource choose_source(const std::vector<Standing>& standings) {
  const auto live = live_source(standings);
  return live ? StateSource{.rank = *live} : source_without_live(standings);
}

StateSource choose_source(std::vector<Standing>& standings,
                          const std::vector<Divisions>& divisions) {
  StateSource source = find_division(divisions);
  if (!source.shards_lost) {
    for (std::size_t rank = 0; rank < standings.size(); ++rank) {
      const Division* const has = find(divisions[rank], source.division);
      if (has != nullptr && has->steps < source.division_steps && has->pending != 0) {
        ++standings[rank].steps;
      }
    }
    if (const auto live = live_source(standings)) {
      source.rank = *live;
      return source;
    }
  }
  const bool shards_lost = source.shards_lost;
  source = source_without_live(standings);
  source.shards_lost = shards_lost;
  return source;
}

}  // namespace hvd::detail
