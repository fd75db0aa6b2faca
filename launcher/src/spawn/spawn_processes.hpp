// The processes of one call of hvd::spawn, and the thread that starts and watches them.
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
#include <hvd/core/fd.hpp>
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
  /// Returns when all have been started. `path` leads to the call. Throws Error.
  SpawnProcesses(int nprocs, const SpawnOptions& options, SpawnPath path);
  /// Ends them and waits.
  ~SpawnProcesses();
  SpawnProcesses(const SpawnProcesses&) = delete;
  SpawnProcesses& operator=(const SpawnProcesses&) = delete;

  /// Whether all are over, at the latest at `deadline`.
  [[nodiscard]] bool wait_until(std::optional<Deadline> deadline);
  void terminate();
  /// Once all are over.
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
  void on_exit(std::size_t index, int status, std::chrono::milliseconds elapsed);
  [[nodiscard]] SpawnOutcome make_outcome();
  [[nodiscard]] ProcessError::End describe(int rank) const;

  // The thread's own, and the constructor's before it runs.
  const int nprocs_;
  const SpawnOptions options_;
  SpawnPath path_;
  boost::asio::io_context io_{1};
  /// Until all is over: output on its way keeps nothing else on the event loop.
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
  std::optional<Error> failure_;  ///< to start
  SpawnOutcome outcome_;
  std::vector<pid_t> pids_;
  /// The children are tied to it: they die when it ends.
  std::thread thread_;
};

}  // namespace hvd::launcher
