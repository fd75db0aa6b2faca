// Records the calls of hvd::spawn in this process, and the call for which it was started.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include <hvd/core/internal/fd.hpp>

#include "spawn/spawn_state.hpp"

namespace hvd::launcher {

class SpawnJournal {
 public:
  /// Returns the journal of this process. If hvd::spawn has started this process, the first call of
  /// `own` reads which call of hvd::spawn did so.
  [[nodiscard]] static SpawnJournal& own();

  /// Says what a call of hvd::spawn has to do.
  struct Step {
    enum class Kind {
      start,   ///< start processes, which get `path`
      run,     ///< this process was started by this call: run the function as `rank`
      pass,    ///< as `run`, but it was started by a call inside that function
      replay,  ///< the call is over in the process that started this one: return `outcome`
    };
    Kind kind = Kind::start;
    std::size_t index = 0;  ///< for `record`
    int rank = 0;
    SpawnPath path{};
    SpawnOutcome outcome{};
  };
  /// Counts the call. Throws Errc::invalid_argument when the call for which this process was
  /// started is at another place in the source.
  [[nodiscard]] Step begin(const SpawnSite& site);
  /// Returns whether this process was started for a call that it has not reached yet.
  [[nodiscard]] bool ahead();
  /// Records how call `index` ended, for the processes of later calls.
  void record(std::size_t index, const SpawnOutcome& outcome);
  /// Returns the descriptor for this process's report, or -1 in a process that hvd::spawn has not
  /// started.
  [[nodiscard]] int report_fd() const noexcept { return report_.get(); }

 private:
  SpawnJournal();

  std::mutex mutex_;
  SpawnPath path_;                      ///< leads to this process; empty if a user started it
  std::size_t depth_ = 0;               ///< the levels of it that this process has reached
  std::vector<SpawnOutcome> outcomes_;  ///< of the calls on this level, in order
  UniqueFd report_;
};

/// The variable of a process that hvd::spawn has started. Its value is "PARENT:STATE:REPORT", a pid
/// and two descriptors.
inline constexpr const char* kSpawnVariable = "HVD_SPAWN";

}  // namespace hvd::launcher
