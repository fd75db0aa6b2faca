// Runs one job from start to end, with its agents, timers, signals, output and report. JobPolicy
// makes the decisions; this class carries them out.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "cli/options.hpp"
#include "job/job_base.hpp"
#include "job/report.hpp"
#include "plan/plan.hpp"
#include "plan/rank_environment.hpp"
#include "plan/this_host.hpp"
#include "supervise/supervisor.hpp"

namespace hvd::launcher {

/// The agents of a job that hvdrun has not started. They are nodes that run their own hvdrun
/// (docs/how-to/node_mode.md), or tasks of another scheduler.
struct ConnectedAgents {
  std::vector<UniqueFd> streams{};     ///< by host of the plan; empty where hvdrun starts the agent
  std::string via = kViaNode;          ///< as in AgentLoss
  std::string master_address{};        ///< empty: that of the agent that serves the store
  bool several_machines = true;        ///< otherwise all agents are on this machine
  Secret secret{};                     ///< the secret of the job
  bool secret_known = false;           ///< every agent has it already
  std::function<void()> on_restart{};  ///< called before the nodes connect again
  /// If it is set, another program informs the user how the job ended, and quotes this many lines
  /// of a rank.
  std::optional<std::size_t> quoted_lines{};
};

class Job final : private JobBase {
 public:
  /// Starts the agents. Hosts of the plan may have agents already, which are in `agents`. Throws
  /// LaunchError.
  Job(Options options, Plan plan, std::optional<ConnectedAgents> agents = {});

  /// Runs the ranks, at most until `deadline`, and returns the exit code of hvdrun. A signal that
  /// came while no job ran yet is given as `signal`; the job may have received it itself too. Must
  /// be called at most once.
  [[nodiscard]] int run(std::optional<Deadline> deadline = {}, int signal = 0);
  /// After `run`, returns whether a rank failed by itself, a restart is left, and neither a signal
  /// nor the deadline has ended the job meanwhile.
  [[nodiscard]] bool may_restart() const noexcept { return may_restart_; }
  [[nodiscard]] const Outcome& outcome() const noexcept { return outcome_; }
  /// Returns the ranks that ran on the host whose loss ended the job, if one did.
  [[nodiscard]] const std::vector<int>& lost_ranks() const noexcept { return lost_ranks_; }
  [[nodiscard]] RankLocation location_of(int rank) const;
  [[nodiscard]] std::deque<Tail::Line> tail(int rank) const { return output_.tail(rank); }

 private:
  /// What an agent says of its host before the ranks start.
  struct Notice {
    int threads = 0;        ///< OMP_NUM_THREADS of its ranks, where hvdrun chose it
    std::string unbound{};  ///< why its ranks are not bound, unless the user wants that
  };
  struct Rank {
    int pid = 0;
    Clock::time_point started{};  ///< when the agent's report of the start arrived at hvdrun
  };

  void start_agent(std::size_t host);
  void send_prepare(std::size_t host);
  void on_frame(std::size_t host, const Frame& frame);
  void on_prepared(std::size_t host, const Prepared& frame);
  void report_threads();
  void report_unbound();
  void on_exited(const Exited& frame);
  void on_lost(std::size_t host, const AgentLoss& loss);
  void write_off(std::size_t host);
  void arm_timers();
  [[nodiscard]] std::string decide_restart();
  void end(const End& order);
  void send_finished(const std::string& report);

  [[nodiscard]] std::string name_of(std::size_t host) const override;
  [[nodiscard]] bool failed() const override { return supervisor_.ending(); }
  void fail(int code, const std::string& what) override { supervisor_.on_trouble(code, what); }
  void on_end_signal(int signal) override;
  void on_end_signal(std::size_t node, int signal);
  void report_end() override;

  Plan plan_;  ///< its hosts are `hosts_`
  boost::asio::steady_timer start_timer_;
  Supervisor supervisor_;
  std::vector<Notice> notices_;  ///< by host
  std::vector<Rank> ranks_;
  std::optional<ConnectedAgents> agents_;
  Prepared meeting_;  ///< the frame of the agent that serves the store
  std::optional<Deadline> deadline_;
  std::set<std::size_t> signalled_;  ///< nodes whose users or platforms have asked the job to end
  int end_signal_ = 0;               ///< the first signal that asked the job to end; 0: none
  Outcome outcome_;                  ///< as reported
  bool may_restart_ = false;
  std::vector<int> lost_ranks_;
};

/// Makes the job of one try. It may return null once the function that it gets returns true, which
/// means that a signal has asked hvdrun to end, or that the time for all tries is over.
using MakeJob =
    std::function<std::unique_ptr<Job>(const Options&, const std::function<bool()>& must_end)>;

/// Runs jobs of `make_job` until one must not be restarted, and returns its exit code. A signal
/// that comes while no job runs ends this too, with 128 + N. So does the timeout of the options,
/// which is for all tries together, with 124. Every try has agents, a store, a secret and a restart
/// count of its own, so that a process left over from an earlier try cannot join.
[[nodiscard]] int run_with_restarts(Options options, const MakeJob& make_job);

}  // namespace hvd::launcher
