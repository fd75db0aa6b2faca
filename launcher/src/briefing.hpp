// What the agents of a job are started with, and told before anything else.
#pragma once

#include <string>
#include <vector>

#include <hvd/core/secret.hpp>

#include "agent_command.hpp"
#include "frames.hpp"
#include "options.hpp"
#include "plan.hpp"
#include "rank_environment.hpp"

namespace hvd::launcher {

/// `options` and `plan` are the job's; hosts are numbered as in the plan.
struct Briefing {
  std::string job_id;
  Secret secret;
  Variables own;                     ///< the environment to pass on
  Forwarding forwarding{};           ///< of that, to other machines
  std::vector<bool> remote{};        ///< by host: something else than hvdrun starts the agent
  bool several_machines = false;     ///< the ranks are on
  bool places_are_known = false;     ///< mpirun tells its ranks who and where they are
  bool nodes_are_their_own = false;  ///< remote agents have a command line and an environment
  bool nodes_have_the_secret = false;

  /// The command that starts the agent. `standard_input` is for the first rank; -1: none.
  [[nodiscard]] AgentCommand command(const Options& options, const Plan& plan, std::size_t host,
                                     int standard_input) const;
  [[nodiscard]] Prepare prepare(const Options& options, const Plan& plan, std::size_t host) const;
  /// The network that the ranks will take, as the library on them will read it.
  [[nodiscard]] std::string interfaces(const Options& options) const;
};

}  // namespace hvd::launcher
