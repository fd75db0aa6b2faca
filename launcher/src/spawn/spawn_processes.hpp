// Holds the processes of one call of hvd::spawn, and the thread that starts and watches them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/types.hpp>
#include <hvd/spawn.hpp>

#include "spawn/spawn_environment.hpp"
#include "spawn/spawn_output.hpp"
#include "spawn/spawn_state.hpp"
#include "supervise/rank_group.hpp"
#include "supervise/supervisor.hpp"

namespace hvd::launcher {

class SpawnProcesses {
 public:
  /// Returns when all processes have been started. `path` leads to the call. Throws Error.
  SpawnProcesses(int nprocs, const SpawnOptions& options, SpawnPath path);
  /// Ends the processes and waits for them.
  ~SpawnProcesses();
  SpawnProcesses(const SpawnProcesses&) = delete;
  SpawnProcesses& operator=(const SpawnProcesses&) = delete;

  /// Waits until all processes have ended, or until `deadline`. Returns whether all have ended.
  [[nodiscard]] bool wait_until(std::optional<Deadline> deadline);
  void terminate();
  /// Must be called only after all processes have ended.
  [[nodiscard]] const SpawnOutcome& outcome() const noexcept { return outcome_; }
  [[nodiscard]] const std::vector<pid_t>& pids() const noexcept { return pids_; }

 private:
  struct Process {
    UniqueFd report_file;
    SpawnReport report{};
    int status = 0;
  };

  void run();
  void start_all();
  void start_one(int local_rank);
  void on_exit(std::size_t index, RankEnd end);
  [[nodiscard]] SpawnOutcome make_outcome();
  [[nodiscard]] ProcessError::End describe(int rank) const;

  // The thread uses these members, and so does the constructor before the thread starts.
  const int nprocs_;
  const SpawnOptions options_;
  SpawnPath path_;
  boost::asio::io_context io_{1};
  /// Keeps the event loop running until all processes have ended and all output was passed on.
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  RankGroup ranks_;
  Supervisor supervisor_;
  std::optional<SpawnEnvironment> environment_;
  std::optional<SpawnOutput> output_;
  std::vector<Process> processes_;  ///< as in `ranks_`

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  bool over_ = false;
  std::optional<Error> failure_;  ///< the reason why the processes could not be started
  SpawnOutcome outcome_;
  std::vector<pid_t> pids_;
  /// Starts and watches the processes, which are killed when it ends.
  std::thread thread_;
};

}  // namespace hvd::launcher
