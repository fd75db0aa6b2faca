// Chooses the rank whose state all ranks take over when a generation of an elastic job starts.
#pragma once

#include <cstdint>
#include <vector>

namespace hvd::detail {

/// Describes what a rank has at the start of a generation. Ranks with equal standings have the same
/// bits, unless they are fresh.
struct Standing {
  enum Kind : std::int64_t {
    fresh,    ///< only what the program has made
    damaged,  ///< what another rank was sending when it was lost
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

/// The rank whose state all ranks get.
struct StateSource {
  int rank = 0;
  bool from_commit = false;  ///< its last commit, not what it has now
};

/// Returns the first rank whose state is sound and furthest, otherwise the first with the last
/// commit, otherwise rank 0, if all ranks are fresh. All ranks pass the same standings, by rank.
/// Throws Errc::unsupported when there is no state to go on from.
[[nodiscard]] StateSource choose_source(const std::vector<Standing>& standings);

}  // namespace hvd::detail
