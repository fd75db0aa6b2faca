// Specifies how the agents of a job are started, and the first frame that each agent gets.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <hvd/core/internal/secret.hpp>

#include "cli/options.hpp"
#include "plan/plan.hpp"
#include "plan/rank_environment.hpp"
#include "plan/this_host.hpp"
#include "transport/agent_command.hpp"
#include "transport/frames.hpp"

namespace hvd::launcher {

/// The time that agents may take to end beyond the grace period of their ranks, and that the
/// processes of a job may take to die after SIGKILL.
inline constexpr std::chrono::milliseconds kAgentPatience{1'500};

/// `options` are those of the job, and `plan` has its ranks; in an elastic job it is empty. Hosts
/// are numbered as in the job.
struct JobSpec {
  std::string job_id;
  Secret secret;
  Variables own;  ///< the environment that is passed on to ranks
  // These two are found out when the job, or a try of it, starts: an agent of an elastic job may be
  // started hours later.
  std::string directory = working_directory(own);  ///< in which the ranks run
  std::string hvdrun = own_path();                 ///< the path of hvdrun on all hosts
  Forwarding forwarding{};                         ///< the part of it that goes to other machines
  std::vector<bool> remote{};                      ///< by host: the agent is no child of hvdrun
  bool several_machines = false;                   ///< the ranks are on several machines
  bool agents_are_their_own = false;  ///< remote agents have a program and environment of their own
  bool agents_have_the_secret = false;

  /// Returns the command that starts the agent of `host`, which is `to`. The first rank reads from
  /// the descriptor `standard_input`; -1 means /dev/null.
  [[nodiscard]] AgentCommand command(const Options& options, std::size_t host, const HostSpec& to,
                                     int standard_input) const;
  [[nodiscard]] Prepare prepare(const Options& options, const Plan& plan, std::size_t host) const;
};

}  // namespace hvd::launcher
