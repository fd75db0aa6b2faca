// Decides when a job has failed, which rank is to blame, when to end the job and with which code.
// It is a state machine without clock, process or socket: it gets events and the time, and returns
// orders.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd::launcher {

/// An order to end all ranks of a job. They get the signal now, and SIGKILL after `grace`.
struct End {
  std::int32_t signal = 0;
  std::chrono::milliseconds grace{0};
};

/// The end of a rank.
struct RankEnd {
  int rank = 0;
  int status = 0;  ///< as from waitpid
  std::chrono::milliseconds elapsed{0};
  /// The rank exited 0 without a shutdown of the library. That counts as a failure only if other
  /// ranks fail after it.
  bool without_shutdown = false;
  /// The rank that the library blamed when it failed on this rank, as in `RankNote`; -1: none.
  int blames = -1;
  bool blamed_left = false;  ///< that rank had left the job, so its process ends by itself
};

/// The end of a job, for the report.
struct Outcome {
  int code = 0;
  std::optional<RankEnd> culprit;  ///< the rank that failed first
  /// The rank that the library on the culprit blames, if its process still ran; -1: none. It has no
  /// exit code, so the culprit, a rank that failed because of it, gives the job's.
  int unresponsive = -1;
  std::vector<RankEnd> others;  ///< ranks that failed by themselves in the settle time
  std::vector<int> ended;       ///< ranks ended by hvdrun, sorted
  std::string trouble;          ///< what happened, when no rank is to blame
};

/// Returns the exit code that a shell would give: the program's own, or 128 + signal.
[[nodiscard]] int exit_code(int status) noexcept;

class JobPolicy {
 public:
  /// The settle time, in which failures are collected before one rank is blamed. The death of a
  /// rank makes others fail within microseconds, and hvdrun may hear of them in any order.
  static constexpr std::chrono::milliseconds kSettle{200};
  /// The settle time where ranks are on several machines, whose reports take different times to
  /// arrive.
  static constexpr std::chrono::milliseconds kSettleOverNetwork{500};
  /// The longest time, from the first failure, in which the process of a rank that has left the job
  /// is waited for. On a busy machine the destructors of its libraries take seconds.
  static constexpr std::chrono::milliseconds kLeaving{5'000};
  /// The time between SIGTERM and SIGKILL after a failure.
  static constexpr std::chrono::milliseconds kFailureGrace{1'000};

  struct Options {
    std::chrono::milliseconds grace{0};  ///< the time between a user's signal and SIGKILL
    std::chrono::milliseconds settle = kSettle;
  };
  JobPolicy(int num_ranks, const Options& options);

  // These functions handle events. The returned order, if any, goes to all agents.

  /// Handles the end of a rank at the time `at`, which is earlier than `now` when the agent of its
  /// host reports it late.
  [[nodiscard]] std::optional<End> on_exit(const RankEnd& end, Clock::time_point now,
                                           Clock::time_point at);
  [[nodiscard]] std::optional<End> on_exit(const RankEnd& end, Clock::time_point now) {
    return on_exit(end, now, now);
  }
  /// A user has sent a signal such as SIGINT. The ranks get the same signal; a second one ends them
  /// at once.
  [[nodiscard]] std::optional<End> on_signal(int signal);
  /// An agent or a whole host is lost, which makes its ranks fail, and then ranks elsewhere. The
  /// loss is blamed instead of ranks that exited with an error within the settle time before it.
  [[nodiscard]] std::optional<End> on_loss(int code, const std::string& what);
  /// Something other than a rank has failed. hvdrun exits with `code` and says `what`, unless a
  /// rank failed before.
  [[nodiscard]] std::optional<End> on_trouble(int code, const std::string& what);
  [[nodiscard]] std::optional<End> on_time(Clock::time_point now);

  /// Returns when `on_time` must be called next.
  [[nodiscard]] std::optional<Clock::time_point> wake_up() const;
  [[nodiscard]] bool ending() const noexcept { return phase_ == Phase::ending; }
  [[nodiscard]] bool failed() const noexcept { return phase_ != Phase::running; }
  [[nodiscard]] Outcome outcome() const;

 private:
  enum class Phase { running, settling, ending };

  struct Failure {
    RankEnd end;
    Clock::time_point at;
  };
  [[nodiscard]] static bool is_strong_cause(const Failure& cause);

  [[nodiscard]] std::chrono::milliseconds failure_grace() const;
  [[nodiscard]] std::vector<Failure>::const_iterator culprit() const;
  [[nodiscard]] Clock::time_point settled_at() const;
  [[nodiscard]] std::optional<End> end(int signal, std::chrono::milliseconds grace);
  void blame();

  Phase phase_ = Phase::running;
  std::size_t num_ranks_;
  Options options_;
  std::set<int> over_;             ///< the ranks that have ended
  Clock::time_point failed_at_{};  ///< when the first failure was reported
  std::vector<Failure> causes_;    ///< in the order of their times, then of the reports
  Outcome outcome_;
};

}  // namespace hvd::launcher
