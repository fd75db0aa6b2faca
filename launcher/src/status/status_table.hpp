// Keeps the progress of all ranks of a job, and formats it as text that also says which ranks wait
// for which.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/internal/rank_report.hpp>
#include <hvd/core/types.hpp>

#include "plan/plan.hpp"
#include "transport/frames.hpp"

namespace hvd::launcher {

class StatusTable {
 public:
  using Time = Clock::time_point;

  /// `plan` must outlive it.
  StatusTable(const Plan& plan, std::string job_id, Time now);

  /// These are the ranks from now on. `plan` must outlive it.
  void regroup(const Plan& plan);
  /// Adds a line to what has changed in the job. Only the last lines are kept.
  void remember(const std::string& change, Time now);

  /// `cpus` are those to which the rank is bound, as text.
  void started(int rank, int pid, std::string cpus = {});
  void ended(int rank);
  void used(const RankUsage& usage, Time now);
  /// Takes the answer of a rank. An answer that is not a RankReport is marked as garbled.
  void said(const RankAnswer& frame, Time now);

  /// Returns whether every rank that runs has answered since `time`.
  [[nodiscard]] bool all_heard_since(Time time) const;

  /// Returns a heading and a line per rank for at most `most` ranks. Ranks that need attention are
  /// listed first.
  [[nodiscard]] std::vector<std::string> lines(Time now, std::size_t most) const;
  /// Returns lines such as "ranks 0, 2 wait for rank 1: allreduce 'grad' for 12.0 s", and one that
  /// names the slowest rank if it costs the others time.
  [[nodiscard]] std::vector<std::string> waits(Time now) const;
  /// Returns the state of the whole job as one line, for logs.
  [[nodiscard]] std::string summary(Time now) const;
  /// Returns what `hvdrun status` prints.
  [[nodiscard]] std::string table(Time now) const;

 private:
  struct Rank {
    int pid = 0;
    std::string cpus;
    bool running = false;
    bool over = false;
    bool garbled = false;  ///< its last answer was no report
    std::optional<RankReport> report;
    Time heard{};
    Time stepped{};  ///< when a report last showed a new step
    std::optional<RankUsage> usage;
    Time used{};
    double cores = 0;  ///< between the last two measurements
  };

  [[nodiscard]] std::string heading() const;
  [[nodiscard]] std::string bound_to(std::string_view text) const;
  [[nodiscard]] std::string line(int rank, Time now) const;
  [[nodiscard]] bool odd(const Rank& rank, Time now) const;
  [[nodiscard]] std::vector<int> missing_in(const RankReport::Pending& pending) const;

  const Plan* plan_;
  std::string job_id_;
  Time began_;
  std::vector<Rank> ranks_;
  std::size_t host_width_;      ///< the width of the column of hosts
  std::size_t cpus_width_ = 0;  ///< that of the column of CPUs; 0: no rank is bound
  bool gpus_ = false;           ///< some rank uses a GPU, so there are columns for GPUs
  std::deque<std::string> changes_;
};

}  // namespace hvd::launcher
