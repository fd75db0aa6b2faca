// Holds what jobs have in common, whether their ranks are fixed or come and go: agents, signals,
// output, status, and the wait for their end.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "cli/options.hpp"
#include "job/job_spec.hpp"
#include "job/output_hub.hpp"
#include "status/status_service.hpp"
#include "transport/agent_link.hpp"
#include "transport/agent_session.hpp"

namespace hvd::launcher {

/// Ends the message about an agent that is lost after an elastic job has succeeded.
inline constexpr std::string_view kMayLackOutput = "its last output may be missing";

class JobBase {
 public:
  JobBase(const JobBase&) = delete;
  JobBase& operator=(const JobBase&) = delete;

 protected:
  struct Host {
    std::unique_ptr<AgentLink> link{};
    AgentSession session{};  ///< the state that the agent's frames have led to
    bool over = false;       ///< nothing more is expected from the agent
  };

  /// Throws LaunchError.
  JobBase(Options options, OutputHub::Options output, JobSpec spec);
  /// Ends all agents, and the processes that they leave behind.
  virtual ~JobBase();

  /// Opens the output and the status. `plan`, which has the ranks whose status is shown, must live
  /// until `io_` runs no more.
  void open(const Plan& plan);

  [[nodiscard]] virtual std::string name_of(std::size_t host) const = 0;
  /// Returns whether the agents were asked to end the job, and its exit code is not 0.
  [[nodiscard]] virtual bool failed() const = 0;
  /// Ends the job, which did nothing wrong, with this exit code.
  virtual void fail(int code, const std::string& what) = 0;
  /// Takes a signal that asks the job to end.
  virtual void on_end_signal(int signal) = 0;
  /// Is called before a signal goes to all ranks.
  virtual void before_signal(int /*signal*/) {}
  /// Returns whether all processes of the job are gone, so that only output may be left.
  [[nodiscard]] virtual bool processes_gone() const;
  /// Is called once, when nothing more is expected from any agent and, unless the job has failed,
  /// all output is written.
  virtual void report_end() = 0;

  void on_signal(int signal);
  void on_output(const Output& frame);
  /// Shows ssh's warnings and the error messages of an agent. Before the agent is prepared they are
  /// part of its loss, if it is lost then.
  void on_stderr(std::size_t host, const std::string& text);

  void send_to_all(const Frame& frame);
  /// Asks the agents to end, and waits for them no longer than they may take.
  void send_end(const End& order);
  void check_over();
  /// Goes on with a stop or the end of the job if that waited for the system to take frames.
  void on_flushed();

  void say(const std::string& line);
  void print_verbosely(const std::string& line);

  // NOLINTBEGIN: the two kinds of jobs share these
  Options options_;
  boost::asio::io_context io_{1};
  OutputHub output_;
  JobSpec spec_;
  std::vector<Host> hosts_;
  std::optional<StatusService> status_;
  // NOLINTEND

 private:
  void watch_signals();
  void stop_when_excused();
  void stop_self();
  void on_output_error(const std::string& target, std::error_code error);
  void send_credit();
  void finish_after(std::chrono::milliseconds time);
  void finish();

  boost::asio::signal_set signals_;
  boost::asio::steady_timer last_timer_;  ///< when `finish` is called
  bool reported_ = false;
  bool suspending_ = false;  ///< hvdrun stops when all agents were sent `Suspend`
};

}  // namespace hvd::launcher
