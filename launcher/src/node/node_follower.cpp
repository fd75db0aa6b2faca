#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/poll.hpp>
#include <hvd/core/version.hpp>

#include "agent/agent.hpp"
#include "base/descriptors.hpp"
#include "base/exit_codes.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"
#include "cli/options.hpp"
#include "node/node_mode.hpp"
#include "plan/rank_environment.hpp"
#include "plan/this_host.hpp"
#include "supervise/guard.hpp"
#include "supervise/job_policy.hpp"

namespace hvd::launcher {
namespace {

/// Returns this node's own part of the job, from its options and environment. `block` is the
/// address block of this node's end of the stream to node 0.
Prepare own_part(const Options& options, const NodeTrust& trust, const std::string& block) {
  const Variables own = own_environment();
  const Variables exported = exported_variables(options.exports, own);
  Prepare part;
  part.directory = working_directory(own);
  part.program = options.program;
  part.secret = trust.secret;
  part.interfaces = chosen_interfaces(options, own);
  if (part.interfaces.empty()) part.interfaces = block;
  part.binding = options.binding;
  Variables found = {fmt::format("PWD={}", part.directory)};
  if (!part.interfaces.empty()) {
    found.push_back(fmt::format("HVD_NETWORK_INTERFACES={}", part.interfaces));
  }
  part.environment = merge(merge(option_variables(options), found), exported);
  return part;
}

// Between two tries to join.
constexpr std::chrono::milliseconds kPause{100};

UniqueFd connect(const NodeConfig& config, const NodeTrust& trust,
                 std::chrono::milliseconds patience, Deadline deadline) {
  const Identity self{.job_id = config.job, .epoch = 0, .rank = -1, .secret = trust.secret};
  try {
    return connect_authenticated(rendezvous_address(config), self, "node", deadline);
  } catch (const Error& error) {
    const std::string there = config.endpoint();
    switch (error.code()) {
      case Errc::unauthenticated:
        throw LaunchError(kExitUnauthenticated,
                          fmt::format("node 0 at {} holds another secret; HVD_SECRET_FILE has to "
                                      "be the same on every node",
                                      there));
      case Errc::protocol:
        throw LaunchError(kExitProtocol, fmt::format("cannot join job '{}' at {}: {}", config.job,
                                                     there, error.what()));
      case Errc::timeout:
        throw LaunchError(
            kExitHostUnreachable,
            fmt::format("node 0 was not reached within {:.1f} s: {}",
                        std::chrono::duration<double>(patience).count(), error.fault().cause));
      default:
        throw LaunchError(kExitResource, fmt::format("cannot join {}: {}", there, error.what()));
    }
  }
}

void send_join(int stream, const NodeConfig& config) {
  const Bytes bytes = encode(Join{.version = std::string(version()),
                                  .node_rank = config.node_rank,
                                  .nodes = config.nodes,
                                  .processes = config.processes,
                                  .hostname = own_host_name()});
  // The first bytes of a stream fit into its buffer; a stream that has ended is noticed below.
  (void)::send(stream, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// Follows node 0 through one try of the job, and returns node 0's last frame.
Finished follow_once(const Options& options, const NodeConfig& config, const NodeTrust& trust) {
  const auto patience = options.start_timeout_or_default();
  const Deadline deadline = Clock::now() + patience;
  for (;;) {
    UniqueFd stream = connect(config, trust, patience, deadline);
    send_join(stream.get(), config);
    std::optional<Finished> over;
    const std::string block = config.one_machine() ? "" : own_block(stream.get());
    UniqueFd output = duplicate(stream.get());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    Agent agent(std::move(stream), std::move(output), UniqueFd(),
                {.own = own_part(options, trust, block),
                 .on_finished = [&over](const Finished& frame) { over = frame; },
                 .forwards_signals = true,
                 .patience = std::max(left, kPause),
                 .host_timeout = options.host_timeout});
    const int code = agent.run();
    if (over) return *over;
    if (code != 0) {
      const int signal = agent.left_by();
      return {.code = code,
              .again = false,
              .report = signal == 0 ? "" : fmt::format("hvdrun: {}\n", received_signal(signal))};
    }
    // Node 0 closes a stream on which no Join arrives in time, as when the network fails for a
    // moment. It has not counted this node then.
    if (agent.answered() || Clock::now() + kPause >= deadline) {
      throw LaunchError(kExitHostUnreachable, fmt::format("lost node 0 at {}", config.endpoint()));
    }
    static_cast<void>(poll_until({}, Clock::now() + kPause));
  }
}

}  // namespace

int follow(const Options& options, const NodeConfig& config, const NodeTrust& trust) {
  const auto work = [&] {
    ::setsid();  // a terminal sends its signals to the guard only
    ::prctl(PR_SET_NAME, "hvdrun-agent");
    for (int restart = 1;; ++restart) {
      const Finished over = follow_once(options, config, trust);
      fmt::print(stderr, "{}", over.report);
      if (!over.again) return over.code;
      fmt::print(stderr, "hvdrun: restart {}\n", restart);
    }
  };
  const int status = run_guarded(work, "hvdrun: ");
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (!is_forwarded(signal)) {
      throw LaunchError(kExitHostUnreachable, fmt::format("the agent of this node was killed by {}",
                                                          signal_name(signal)));
    }
    // It came before the agent handled signals.
    fmt::print(stderr, "hvdrun: {}\n", received_signal(signal));
  }
  return exit_code(status);
}

}  // namespace hvd::launcher
