// The calls of hvd::spawn that this process has made, and the one that it was started for: the one
// thing about them that belongs to the process and not to a call.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include <hvd/core/fd.hpp>

#include "spawn/spawn_state.hpp"

namespace hvd::launcher {

class SpawnJournal {
 public:
  /// This process's. A process that hvd::spawn has started reads where to when it is first asked.
  [[nodiscard]] static SpawnJournal& own();

  /// What to do at a call.
  struct Step {
    enum class Kind {
      start,   ///< start processes, which get `path`
      run,     ///< this process was started by it: run the function as `rank`
      pass,    ///< the same, but it was started by a call further inside: the function leads there
      replay,  ///< it is over: `outcome` tells how
    };
    Kind kind = Kind::start;
    std::size_t index = 0;  ///< for `record`
    int rank = 0;
    SpawnPath path{};
    SpawnOutcome outcome{};
  };
  /// Counts the call. Throws Errc::invalid_argument when the call that this process is started for
  /// stands elsewhere in the source.
  [[nodiscard]] Step begin(const SpawnSite& site);
  /// Whether this process was started for a call that it has not come to yet.
  [[nodiscard]] bool ahead();
  /// How call `index` ended, for the processes of later calls.
  void record(std::size_t index, const SpawnOutcome& outcome);
  /// Where a process reports to; -1 in the first one.
  [[nodiscard]] int report_fd() const noexcept { return report_.get(); }

 private:
  SpawnJournal();

  std::mutex mutex_;
  SpawnPath path_;                      ///< to this process; empty for one that a user started
  std::size_t depth_ = 0;               ///< levels of it that are behind us
  std::vector<SpawnOutcome> outcomes_;  ///< of the calls on this level, in order
  UniqueFd report_;
};

/// The variable that makes a process one of hvd::spawn: "PARENT:STATE:REPORT", a pid and two
/// descriptors.
inline constexpr const char* kSpawnVariable = "HVD_SPAWN";

}  // namespace hvd::launcher
