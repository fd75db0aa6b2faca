// One job from start to end, as the front end sees it: agents, timers, signals, output, report.
// Decisions are the policy's; this class carries them out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent_link.hpp"
#include "job_policy.hpp"
#include "options.hpp"
#include "output_hub.hpp"
#include "plan.hpp"
#include "rendezvous.hpp"
#include "report.hpp"

namespace hvd::launcher {

class Job {
 public:
  /// Starts the agents and the store. Throws LaunchError.
  Job(Options options, Plan plan);
  ~Job();

  /// Runs the ranks and returns what hvdrun exits with. Once.
  [[nodiscard]] int run();

 private:
  struct Host {
    std::unique_ptr<AgentLink> link;
    bool prepared = false;
    bool gone = false;       ///< no process of the job is left on it
    bool over = false;       ///< nothing more comes from it
    std::uint32_t debt = 0;  ///< output bytes not credited yet
  };
  struct Rank {
    int pid = 0;
    bool running = false;
    bool over = false;
  };

  void send_prepare(std::size_t host);
  void on_frame(std::size_t host, const Frame& frame);
  void on_prepared(std::size_t host, const Prepared& frame);
  void on_output(std::size_t host, const Output& frame);
  void on_exited(const Exited& frame);
  void on_lost(std::size_t host, const std::string& how);
  void pay_credit();

  void watch_signals();
  void on_signal(int signal);
  void on_output_error(Stream stream, std::error_code error);
  void arm_timers();
  void arm_settle_timer();

  void order(const std::optional<End>& order);
  void send_to_all(const Frame& frame);
  void check_over();
  void finish();
  void say_verbosely(const std::string& line);
  [[nodiscard]] bool processes_gone() const;
  [[nodiscard]] std::string host_of(int rank) const;

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
  std::optional<JobRendezvous> rendezvous_;
  bool draining_ = false;
  bool reported_ = false;
  std::optional<int> late_signal_;  ///< came when all ranks were over
};

}  // namespace hvd::launcher
