// The processes of one call of hvd::spawn, and the thread that starts and watches them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/fd.hpp>
#include <hvd/core/types.hpp>
#include <hvd/spawn.hpp>

#include "job_policy.hpp"
#include "spawn_output.hpp"
#include "spawn_place.hpp"
#include "spawn_state.hpp"

namespace hvd::launcher {

class SpawnProcesses {
 public:
  /// Returns when all have been started. `path` leads to the call. Throws Error.
  SpawnProcesses(int nprocs, const SpawnOptions& options, SpawnPath path);
  /// Ends them and waits.
  ~SpawnProcesses();
  SpawnProcesses(const SpawnProcesses&) = delete;
  SpawnProcesses& operator=(const SpawnProcesses&) = delete;

  /// Whether all are over, at the latest at `deadline`.
  [[nodiscard]] bool wait_until(std::optional<Deadline> deadline);
  void terminate() noexcept;
  /// Once all are over.
  [[nodiscard]] const SpawnOutcome& outcome() const noexcept { return outcome_; }
  [[nodiscard]] const std::vector<pid_t>& pids() const noexcept { return pids_; }

 private:
  struct Process {
    int rank = 0;
    pid_t pid = -1;
    UniqueFd ended;
    UniqueFd report_file;
    int status = 0;
    bool running = true;
    SpawnReport report{};
  };

  void run();
  void start_all();
  void start_one(int local_rank);
  void watch();
  void wait_for_something();
  void reap(Process& process);
  void order(const std::optional<End>& end);
  void signal_all(int signal) noexcept;
  [[nodiscard]] bool any_running() const;
  [[nodiscard]] SpawnOutcome make_outcome();
  [[nodiscard]] ProcessError::End describe(const Process& process) const;

  // The thread's own, and the constructor's before it runs.
  const int nprocs_;
  const SpawnOptions options_;
  SpawnPath path_;
  const Clock::time_point start_ = Clock::now();
  std::optional<SpawnPlace> place_;
  std::optional<SpawnOutput> output_;
  std::vector<Process> processes_;
  JobPolicy policy_;
  std::optional<Deadline> kill_at_;
  std::optional<Deadline> timeout_at_;
  UniqueFd wake_;  ///< an eventfd: terminate

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  bool over_ = false;
  std::optional<Error> failure_;  ///< to start
  SpawnOutcome outcome_;
  std::vector<pid_t> pids_;
  /// The children are tied to it: they die when it ends.
  std::thread thread_;
};

}  // namespace hvd::launcher
