// One job from start to end, as the front end sees it: agents, timers, signals, output, report.
// Decisions are the policy's; this class carries them out.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent_link.hpp"
#include "briefing.hpp"
#include "job_policy.hpp"
#include "mpirun_command.hpp"
#include "mpirun_output.hpp"
#include "options.hpp"
#include "output_hub.hpp"
#include "own_environment.hpp"
#include "plan.hpp"
#include "rank_environment.hpp"
#include "rendezvous.hpp"
#include "report.hpp"
#include "status_desk.hpp"

namespace hvd::launcher {

/// Nodes whose hvdruns came by themselves (docs/node_mode.md).
struct NodeParty {
  std::vector<UniqueFd> streams{};     ///< by host of the plan; the first host is this one: none
  std::string master_address{};        ///< as typed
  bool one_machine = false;            ///< all nodes are on this machine
  Secret secret{};                     ///< the job's
  bool secret_known = false;           ///< every node has it already
  std::function<void()> on_restart{};  ///< the nodes are about to come back
};

class Job {
 public:
  /// Starts the agents. Throws LaunchError.
  Job(Options options, Plan plan);
  /// The ranks are started by mpirun, the only process that this job starts itself.
  Job(Options options, Plan plan, MpirunCommand mpirun);
  /// The first host of the plan is this one, the others are `nodes`.
  Job(Options options, Plan plan, NodeParty nodes);
  ~Job();

  /// Runs the ranks and returns what hvdrun exits with. Once.
  [[nodiscard]] int run();
  /// After `run`: whether a rank failed by itself, so that another try may go better.
  [[nodiscard]] bool lost_a_rank() const noexcept { return outcome_.culprit.has_value(); }

 private:
  struct Host {
    std::unique_ptr<AgentLink> link;
    bool remote = false;
    bool prepared = false;
    bool gone = false;       ///< no process of the job is left on it
    bool over = false;       ///< nothing more comes from it
    int threads = 0;         ///< OMP_NUM_THREADS of its ranks, where hvdrun chose it
    std::uint32_t debt = 0;  ///< output bytes not credited yet
  };
  struct Rank {
    int pid = 0;
    bool running = false;
    bool over = false;
    Clock::time_point started{};  ///< when its agent's word of it came
  };

  Job(Options options, Plan plan, std::optional<Plan> through_mpirun, Variables own,
      std::optional<NodeParty> nodes);
  void send_prepare(std::size_t host);
  void on_frame(std::size_t host, const Frame& frame);
  void on_prepared(std::size_t host, const Prepared& frame);
  void tell_threads();
  void on_output(std::size_t host, const Output& frame);
  void on_exited(const Exited& frame);
  void on_words(std::size_t host, const std::string& words);
  void on_lost(std::size_t host, const AgentLoss& loss);
  void pay_credit();

  void watch_signals();
  void on_signal(int signal);
  void suspend();
  void on_output_error(Stream stream, std::error_code error);
  void arm_timers();
  void arm_settle_timer();

  void order(const std::optional<End>& order);
  void send_to_all(const Frame& frame);
  void check_over();
  void tell_end();
  void tell_nodes(const std::string& report);
  void finish();
  void say(const std::string& line);
  void say_verbosely(const std::string& line);
  void open_status_desk();
  [[nodiscard]] bool processes_gone() const;

  Options options_;
  Plan plan_;
  JobPolicy policy_;
  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_;
  boost::asio::steady_timer settle_timer_;
  boost::asio::steady_timer start_timer_;
  boost::asio::steady_timer job_timer_;
  boost::asio::steady_timer last_timer_;  ///< when hvdrun stops waiting for agents and readers
  OutputHub output_;
  std::vector<Host> hosts_;  ///< as in the plan
  std::vector<Rank> ranks_;
  std::optional<StatusDesk> status_;
  std::optional<NodeParty> nodes_;
  Briefing briefing_;
  Prepared meeting_;                 ///< of the agent that serves the store
  std::optional<Plan> mpirun_plan_;  ///< where mpirun puts its ranks
  std::optional<MpirunOutput> mpirun_output_;
  Outcome outcome_;  ///< as reported
  bool draining_ = false;
  bool reported_ = false;
  std::optional<int> late_signal_;  ///< came when all ranks were over
};

}  // namespace hvd::launcher
