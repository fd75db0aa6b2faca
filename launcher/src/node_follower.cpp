#include "node_follower.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/version.hpp>

#include "agent.hpp"
#include "descriptors.hpp"
#include "exit_codes.hpp"
#include "node_guard.hpp"
#include "option_variables.hpp"
#include "own_environment.hpp"
#include "rank_environment.hpp"
#include "text.hpp"
#include "this_host.hpp"
#include "working_directory.hpp"

namespace hvd::launcher {
namespace {

/// The variables that another node may set here: who a rank is and where it meets the others.
constexpr std::array<std::string_view, 16> kFromOutside = {
    "HVD_RANK",       "HVD_SIZE",   "HVD_LOCAL_RANK",    "HVD_LOCAL_SIZE",   "HVD_CROSS_RANK",
    "HVD_CROSS_SIZE", "HVD_JOB_ID", "HVD_RESTART_COUNT", "HVD_STORE",        "RANK",
    "WORLD_SIZE",     "LOCAL_RANK", "GROUP_RANK",        "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT"};

void keep_identity(Variables& variables) {
  std::erase_if(variables, [](const std::string& entry) {
    const auto name = std::string_view(entry).substr(0, entry.find('='));
    return std::find(kFromOutside.begin(), kFromOutside.end(), name) == kFromOutside.end();
  });
}

/// What this node's own options and variables mean to its ranks.
struct OwnPart {
  std::string directory;
  std::vector<std::string> program;
  Variables environment;
  std::string interfaces;
  Secret secret;  ///< empty: the leading node's
};

OwnPart own_part(const Options& options, const NodeTrust& trust, const std::string& block) {
  const Variables own = own_environment();
  const Variables exported = exported_variables(options.exports, own);
  OwnPart part{.directory = working_directory(own),
               .program = options.program,
               .environment = option_variables(options),
               .interfaces = options.interfaces,
               .secret = trust.secret};
  constexpr std::string_view kName = "HVD_NETWORK_INTERFACES";
  if (contains(exported, kName)) part.interfaces = value_of(exported, kName);
  if (part.interfaces.empty()) part.interfaces = value_of(own, kName);
  if (part.interfaces.empty()) part.interfaces = block;
  Variables found = {fmt::format("PWD={}", part.directory)};
  if (!part.interfaces.empty()) found.push_back(fmt::format("{}={}", kName, part.interfaces));
  part.environment = merge(merge(part.environment, found), exported);
  return part;
}

NodeHooks hooks_for(OwnPart part, pid_t guard, std::optional<Over>& over) {
  NodeHooks hooks;
  hooks.parent = guard;
  hooks.on_prepare = [part = std::move(part)](Prepare& frame) {
    frame.directory = part.directory;
    frame.program = part.program;
    frame.environment = part.environment;
    frame.interfaces = part.interfaces;
    if (!part.secret.empty()) frame.secret = part.secret;
    for (Prepare::Rank& rank : frame.ranks) keep_identity(rank.variables);
  };
  hooks.on_launch = [](Launch& frame) { keep_identity(frame.variables); };
  hooks.on_over = [&over](const Over& frame) { over = frame; };
  return hooks;
}

UniqueFd connect(const NodePlace& place, const NodeTrust& trust,
                 std::chrono::milliseconds patience) {
  const Identity self{.job_id = place.job, .epoch = 0, .rank = -1, .secret = trust.secret};
  try {
    return go_to_meeting(meeting_address(place), self, "node", Clock::now() + patience);
  } catch (const Error& error) {
    const std::string there = place.endpoint();
    switch (error.code()) {
      case Errc::unauthenticated:
        throw LaunchError(kExitUnauthenticated,
                          fmt::format("node 0 at {} holds another secret; HVD_SECRET_FILE has to "
                                      "be the same on every node",
                                      there));
      case Errc::protocol:
        throw LaunchError(kExitProtocol, fmt::format("cannot join job '{}' at {}: {}", place.job,
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

void send_join(int stream, const NodePlace& place) {
  const Bytes bytes = encode(Join{.version = std::string(version()),
                                  .node_rank = place.node_rank,
                                  .nodes = place.nodes,
                                  .processes = place.processes,
                                  .hostname = own_host_name()});
  // The first bytes of a stream fit into its buffer; a stream that has ended is noticed below.
  (void)::send(stream, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// One try of the job; what node 0 said at its end.
Over follow_once(const Options& options, const NodePlace& place, const NodeTrust& trust,
                 pid_t guard) {
  const auto patience = options.start_timeout.value_or(Options::kDefaultStartTimeout);
  UniqueFd stream = connect(place, trust, patience);
  send_join(stream.get(), place);
  std::optional<Over> over;
  const std::string block = place.one_machine() ? "" : own_block(stream.get());
  UniqueFd output = duplicate(stream.get());
  const int code = Agent(std::move(stream), std::move(output), UniqueFd(),
                         hooks_for(own_part(options, trust, block), guard, over))
                       .run();
  if (over) return *over;
  if (code != 0) return {.code = code, .again = false, .report = ""};
  throw LaunchError(kExitHostUnreachable, fmt::format("lost node 0 at {}", place.endpoint()));
}

}  // namespace

int follow(const Options& options, const NodePlace& place, const NodeTrust& trust) {
  return run_below_guard([&](pid_t guard) {
    ::prctl(PR_SET_NAME, "hvdrun-agent");
    for (int restart = 1;; ++restart) {
      const Over over = follow_once(options, place, trust, guard);
      fmt::print(stderr, "{}", over.report);
      if (!over.again) return over.code;
      fmt::print(stderr, "hvdrun: restart {}\n", restart);
    }
  });
}

}  // namespace hvd::launcher
