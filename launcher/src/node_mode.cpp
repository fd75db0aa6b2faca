#include "node_mode.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "block_signals.hpp"
#include "exit_codes.hpp"
#include "job.hpp"
#include "node_follower.hpp"
#include "node_meeting.hpp"
#include "own_environment.hpp"
#include "plan.hpp"
#include "platform_modelarts.hpp"
#include "text.hpp"
#include "this_host.hpp"

namespace hvd::launcher {
namespace {

std::string name_of(const std::string& hostname, std::size_t node) {
  return fmt::format("{}, node {}", hostname, node);
}

bool has_interfaces(const Options& options, const Variables& own) {
  constexpr const char* kName = "HVD_NETWORK_INTERFACES";
  return !options.interfaces.empty() || contains(own, kName) ||
         contains(exported_variables(options.exports, own), kName);
}

/// One try. Without a lobby this node is all there is.
std::unique_ptr<Job> make_job(Options options, const NodePlace& place, const NodeTrust& trust,
                              NodeLobby* lobby) {
  NodeParty party;
  party.master_address = place.address;
  party.one_machine = place.one_machine();
  party.secret_known = !trust.secret.empty();
  party.secret = party.secret_known ? trust.secret : Secret::random();
  party.streams.emplace_back();
  std::vector<HostSpec> hosts = {
      {.name = lobby == nullptr ? "localhost" : name_of(own_host_name(), 0),
       .slots = place.processes}};
  int ranks = place.processes;
  if (lobby != nullptr) {
    party.on_restart = [lobby] { lobby->reopen(); };
    const auto patience = options.start_timeout.value_or(Options::kDefaultStartTimeout);
    for (NodeLobby::Guest& guest : lobby->gather(patience)) {
      hosts.push_back(
          {.name = name_of(guest.join.hostname, hosts.size()), .slots = guest.join.processes});
      ranks += guest.join.processes;
      if (!party.one_machine && !has_interfaces(options, own_environment())) {
        options.interfaces = own_block(guest.stream.get());
      }
      party.streams.push_back(std::move(guest.stream));
    }
  }
  return std::make_unique<Job>(std::move(options), plan_ranks(hosts, ranks), std::move(party));
}

int lead(Options options, const NodePlace& place, const NodeTrust& trust, NodeLobby* lobby) {
  for (;; ++options.restart_count) {
    const auto job = make_job(options, place, trust, lobby);
    const int code = job->run();
    if (!job->lost_a_rank() || options.restart_count >= options.max_restarts) return code;
    fmt::print(stderr, "hvdrun: restart {} of {}\n", options.restart_count + 1,
               options.max_restarts);
  }
}

/// Null where another node listens already, and that is in order.
std::unique_ptr<NodeLobby> open_lobby(const NodePlace& place, const NodeTrust& trust) {
  const BlockSignals blocked;  // its thread is no place for them
  try {
    return std::make_unique<NodeLobby>(place, trust);
  } catch (const LaunchError&) {
    if (place.hosting == Hosting::if_free) return nullptr;
    throw;
  }
}

std::string describe(const NodePlace& place, const Options& options) {
  std::string words;
  for (const std::string& word : options.program) words += fmt::format(" {}", shell_word(word));
  return fmt::format("node {} of {}, {} ranks, job {} at {}:{}\n",
                     place.node_rank < 0 ? "?" : fmt::to_string(place.node_rank), place.nodes,
                     place.processes, place.job, place.endpoint(), words);
}

}  // namespace

int run_node(Options options) {
  const Variables own = own_environment();
  NodePlace place = place_of(options.node, own, options.program);
  if (!options.node.platform.empty()) {
    options.program.front() = modelarts_program(options.program.front(), own);
  }
  if (!options.start_timeout && place.join_timeout) options.start_timeout = place.join_timeout;
  if (options.dry_run) {
    fmt::print("{}", describe(place, options));
    return 0;
  }
  if (place.nodes == 1) return lead(std::move(options), place, {}, nullptr);
  const NodeTrust trust = trust_of(place, own);
  if (trust.insecure) {
    fmt::print(stderr,
               "hvdrun: HVD_INSECURE=1: everybody who reaches {} can join this job and read its "
               "secret\n",
               place.endpoint());
  }
  if (place.hosting != Hosting::no) {
    if (const auto lobby = open_lobby(place, trust)) {
      place.node_rank = 0;
      return lead(std::move(options), place, trust, lobby.get());
    }
  }
  return follow(options, place, trust);
}

}  // namespace hvd::launcher
