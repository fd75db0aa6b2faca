// Chooses the rank whose state all ranks take over when a generation of an elastic job starts.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd::detail {

/// Describes what a rank has at the start of a generation. Ranks with equal standings have the same
/// bits, unless they are fresh.
struct Standing {
  enum Kind : std::int64_t {
    fresh,    ///< the rank has received and trained nothing
    damaged,  ///< a part of what another rank was sending when it was lost
    whole,
  };
  std::int64_t kind = fresh;
  std::int64_t certain = 0;     ///< not 0: the parameters are those after `steps`
  std::int64_t steps = 0;       ///< completed
  std::int64_t iterations = 0;  ///< ended
  std::int64_t commits = 0;     ///< the number of its last one; 0: none

  [[nodiscard]] bool is_sound() const noexcept { return kind == whole && certain != 0; }
  friend bool operator==(const Standing&, const Standing&) = default;
};

/// Describes what a rank holds of the optimizers' states as they were divided in one generation. It
/// is the shard of its rank in that generation, and a mirror of the shard of the rank before it.
struct Division {
  std::int64_t number = 0;   ///< grows with each division; 0: none
  std::int64_t rank = 0;     ///< the rank that the holder had in that generation
  std::int64_t ranks = 0;    ///< the number of ranks of that generation
  std::int64_t steps = 0;    ///< the steps that this rank has made since the division began
  std::int64_t pending = 0;  ///< not 0: it has all that it needs to make one more step by itself

  /// Returns whether this rank has come to `most` steps or can do so by itself.
  [[nodiscard]] bool reaches(std::int64_t most) const noexcept {
    return steps == most || (pending != 0 && steps + 1 == most);
  }
  friend bool operator==(const Division&, const Division&) = default;
};
using Divisions = std::vector<Division>;

/// The rank that has a shard.
struct ShardSource {
  int rank = 0;
  bool is_mirror = false;
};

/// The rank whose state all ranks get.
struct StateSource {
  int rank = 0;
  bool from_commit = false;  ///< its last commit, not what it has now
  bool shards_lost = false;  ///< a shard was lost with its mirror, so it is from a commit
  /// If states are divided and mirrored: the division that is used, the most steps that a rank has
  /// made in it, and who has its shards, by rank in that generation. A rank that has made fewer
  /// makes the pending one.
  std::int64_t division = 0;
  std::int64_t division_steps = 0;
  std::vector<ShardSource> shards{};
};

/// Returns the first rank whose state is sound and furthest, otherwise the first with the last
/// commit, otherwise rank 0, if all ranks are fresh. All ranks pass the same standings, by rank.
/// Throws Errc::unsupported when there is no state to go on from.
[[nodiscard]] StateSource choose_source(const std::vector<Standing>& standings);

/// Does the same where the states of optimizers are divided and mirrored. `divisions` has those of
/// each rank. A state is sound only if some division has all its shards. A rank that makes its
/// pending step counts as one that has made it, and `standings` are changed so.
[[nodiscard]] StateSource choose_source(std::vector<Standing>& standings,
                                        const std::vector<Divisions>& divisions);

}  // namespace hvd::detail
