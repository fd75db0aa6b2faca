// Runs an elastic job, whose workers come and go. Membership makes the decisions; this class
// carries them out.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include <hvd/core/internal/membership.hpp>

#include "cli/options.hpp"
#include "job/job_base.hpp"
#include "plan/host_discovery.hpp"
#include "plan/hosts.hpp"
#include "plan/plan.hpp"
#include "supervise/job_policy.hpp"
#include "transport/agent_link.hpp"

namespace hvd::launcher {

using detail::Membership;

class ElasticJob final : private JobBase {
 public:
  /// `hosts` are those of the job if no script lists them. Throws LaunchError.
  ElasticJob(Options options, std::vector<HostSpec> hosts);

  /// Runs the job and returns the exit code of hvdrun. Must be called at most once.
  [[nodiscard]] int run();

 private:
  struct Worker {
    int pid = 0;
    std::string cpus;  ///< to which it is bound, as text
    int rank = -1;     ///< in the generation of which it was a member last
    std::uint32_t generation = 0;
    bool leaves = false;  ///< it was asked to stop
  };
  /// Holds what only elastic jobs know of the agent of a host.
  struct Agent {
    explicit Agent(boost::asio::io_context& io) : start_timer(io) {}
    boost::asio::steady_timer start_timer;  ///< limits how long it may take to start
    std::vector<Frame> orders;              ///< are sent when it is prepared
    bool unreachable = false;               ///< it could not be started; the host is lost soon
  };
  /// A generation whose store is not served yet. The agent of its rank 0 was asked to serve it.
  struct Forming {
    Membership::Form form;
    std::vector<Membership::Tell> later{};  ///< orders that must follow the assignments
  };

  void on_discovered(const std::vector<HostSpec>& hosts);
  void on_discovery_failure(const std::string& why);
  void start_agent(std::size_t host);
  void on_frame(std::size_t host, const Frame& frame);
  void on_message(const ElasticMessage& frame);
  void on_served(const Served& frame);
  void on_exited(const Exited& frame);
  void lose(std::size_t host, const std::string& why);
  void bury_workers(std::size_t host);
  void end_output(std::size_t host);

  void obey(const Membership::Orders& orders);
  void carry_out(const Membership::Start& order);
  void carry_out(const Membership::Form& order);
  void carry_out(const Membership::Tell& order);
  void carry_out(const Membership::Kill& order);
  void carry_out(const Membership::Finish& order);
  void order(std::size_t host, const Frame& frame);
  void tell(int worker, const detail::ElasticOrder& order);

  void end(int code, const std::string& why, const End& order);
  [[nodiscard]] std::string name_of(std::size_t host) const override;
  [[nodiscard]] bool failed() const override { return ending_ && code_ != 0; }
  [[nodiscard]] bool processes_gone() const override {
    return ending_ && JobBase::processes_gone();
  }
  void fail(int code, const std::string& what) override;
  void on_end_signal(int signal) override;
  void before_signal(int signal) override;
  void report_end() override;
  [[nodiscard]] Worker& worker_at(int worker);
  /// Returns the most workers that may run on the host at once.
  [[nodiscard]] int workers_on(std::size_t host) const;
  [[nodiscard]] std::string name_of_worker(int worker);
  /// Returns the rank of the worker in the generation that formed last, or -1.
  [[nodiscard]] int rank_of(int worker);
  /// Says what has changed, and remembers it for `hvdrun status`.
  void report(const std::string& change, bool loudly = true);

  boost::asio::steady_timer membership_timer_;
  boost::asio::steady_timer limit_timer_;
  Membership membership_;
  KnownHosts known_hosts_;                        ///< `hosts_` has those that have been used so far
  Plan plan_;                                     ///< of the generation that formed last
  std::deque<Agent> agents_;                      ///< by host
  std::vector<std::unique_ptr<AgentLink>> lost_;  ///< closed links, whose agents still end
  std::vector<Worker> workers_;
  std::optional<Forming> forming_;
  std::uint32_t generation_ = 0;  ///< the one that formed last; `plan_` has its ranks
  std::optional<HostDiscovery> discovery_;
  std::vector<HostSpec> fixed_hosts_;
  std::string last_listed_;  ///< the hosts that were listed last, as text; empty: never yet
  std::string last_complaint_;
  std::optional<int> last_failed_;  ///< the worker that has failed last
  std::optional<int> quoted_;       ///< the worker whose last lines the report quotes
  int announced_ = 0;               ///< the signal that the generation was told of; 0: none
  int stop_signal_ = 0;             ///< was passed on so that the job stops, as no generation ran
  bool ending_ = false;
  int code_ = 0;
};

}  // namespace hvd::launcher
