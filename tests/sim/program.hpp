// The programs of a run's users, drawn from its seed: training loops that diverge now and then.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/request.hpp>

#include "event_queue.hpp"
#include "random.hpp"

namespace hvd::sim {

/// An operation to submit. Its process set is the `slot`-th that the program made; -1 means all
/// ranks.
struct Operation {
  Request request;
  int slot = -1;
};

struct Act {
  enum class Kind {
    submit,    ///< submits `operations`; several form a group
    wait_all,  ///< waits for all submissions of this thread, and counts them
    wait_last,
    forget_last,  ///< does not wait for the last one
    compute,
    join,
    add_set,
    remove_set,
    abort,
  };
  Kind kind = Kind::compute;
  std::vector<Operation> operations;
  Nanos duration = 0;
  int slot = 0;
  std::vector<int> ranks;
  bool over_contributors = false;
  bool while_pending = false;  ///< submitted only if its name is pending, and then refused
};

struct RankProgram {
  std::vector<std::vector<Act>> threads;
  Nanos linger = 0;  ///< time between its end and the shutdown
};

/// Features of a program. They are counted, so that a run over many seeds shows that each occurs.
enum class Trait {
  swap,
  skip,
  repeat,
  insert,
  insert_everywhere,
  duplicate,
  shape_everywhere,
  mismatch,
  metric,
  unnamed,
  group,
  split_group,
  group_differs,
  sets,
  set_removed,
  join,
  join_pending,
  rows,
  alltoall,
  broadcast,
  long_compute,
  alternating,
  threads,
  early_shutdown,
  steady,
};
inline constexpr int kTraitCount = static_cast<int>(Trait::steady) + 1;
[[nodiscard]] std::string_view to_string(Trait trait) noexcept;

struct Script {
  int ranks = 1;
  int freeze_after = 1;
  std::size_t fusion_threshold = 0;
  std::vector<RankProgram> programs;  ///< by rank
  std::array<bool, kTraitCount> traits{};
  /// Steps never differ or wait for long, so after the freeze there are no messages.
  bool steady = false;
  /// The program is steady and long enough to be frozen.
  bool must_freeze = false;
  int never_submits = -1;  ///< a rank that never submits one operation; -1: none

  [[nodiscard]] bool has(Trait trait) const { return traits[static_cast<std::size_t>(trait)]; }
};

struct ScriptOptions {
  int ranks = 1;
  bool steady = false;          ///< no divergence
  bool somebody_lacks = false;  ///< one rank never submits one operation
};
[[nodiscard]] Script make_script(Random& random, const ScriptOptions& options);

}  // namespace hvd::sim
