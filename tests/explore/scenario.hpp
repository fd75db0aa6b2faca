// The bounded programs that are explored, and what must become of each of their operations. Both
// are known before the run, since the programs do not branch.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/request.hpp>

namespace hvd::explore {

inline constexpr int kMostRanks = 3;

struct ScenarioStep {
  enum class Kind { submit, wait_all };
  Kind kind = Kind::submit;
  Request request{};
  int meaning = -1;  ///< of a submission: index into `Scenario::meanings`
};

/// An operation as the programs mean it: the k-th of a name since the last join.
struct Meaning {
  std::string name;
  std::vector<int> members;
  std::vector<int> steps;      ///< by rank, the index in its program; -1: does not submit it
  std::optional<Errc> error;   ///< what it must end with; nothing: it succeeds
  std::vector<bool> stand_in;  ///< by rank, has joined instead of submitting it
};

struct Scenario {
  std::string name;
  int ranks = 2;
  std::vector<std::vector<ScenarioStep>> programs;  ///< by rank; a shutdown follows
  std::vector<Meaning> meanings;
  bool over_contributors = false;
  /// A rank shuts down without waiting, so an operation may also fail with `Errc::shut_down`.
  bool early_shutdown = false;
  // How many faults may occur, in all and of each kind.
  int faults = 0;
  bool crash = false;
  bool pause = false;
  bool cut = false;
  // Of an elastic job, which has no programs and meanings.
  bool elastic = false;
  bool mirrored = false;    ///< the state is divided and mirrored
  bool leave = false;       ///< a worker is asked to leave
  bool slot_added = false;  ///< discovery lists one slot more
  bool host_loss = false;   ///< discovery lists a host no longer, or its agent is lost
};

/// Programs are freeze, thaw, join, process_set, shutdown; faults are none, crash, pause, cut,
/// pairs. Elastic jobs are elastic and mirrored; faults are none, crash, pause, leave, hosts,
/// pairs. Returns nothing for an unknown `configuration`, PROGRAM or PROGRAM+FAULT.
[[nodiscard]] std::optional<Scenario> make_scenario(std::string_view configuration, int ranks);
[[nodiscard]] std::vector<std::string> configurations();

}  // namespace hvd::explore
