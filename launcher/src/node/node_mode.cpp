#include "node/node_mode.hpp"

#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/exit_codes.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"
#include "job/job.hpp"
#include "node/node_rendezvous.hpp"
#include "plan/plan.hpp"
#include "plan/platform_modelarts.hpp"
#include "plan/this_host.hpp"

namespace hvd::launcher {
namespace {

std::string name_of(const std::string& hostname, std::size_t node) {
  return fmt::format("{}, node {}", hostname, node);
}

/// Makes the job of one try, or returns null once `must_end` returns true. Without an acceptor this
/// node is the only one.
std::unique_ptr<Job> make_job(Options options, const NodeConfig& config, const NodeTrust& trust,
                              NodeAcceptor* acceptor, const std::function<bool()>& must_end) {
  ConnectedAgents nodes;
  nodes.master_address = config.address;
  nodes.several_machines = !config.one_machine();
  nodes.secret_known = !trust.secret.empty();
  nodes.secret = nodes.secret_known ? trust.secret : Secret::random();
  nodes.streams.emplace_back();
  std::vector<HostSpec> hosts = {
      {.name = acceptor == nullptr ? "localhost" : name_of(own_host_name(), 0),
       .slots = config.processes}};
  int ranks = config.processes;
  if (acceptor != nullptr) {
    nodes.on_restart = [acceptor] { acceptor->reopen(); };
    const auto patience = options.start_timeout_or_default();
    const auto on_join = [&options](const Join& join) {
      if (options.verbose) fmt::print(stderr, "hvdrun: a node on {} has joined\n", join.hostname);
    };
    auto joined = acceptor->gather(patience, {.on_join = on_join, .must_end = must_end});
    if (!joined) return nullptr;
    for (NodeAcceptor::JoinedNode& node : *joined) {
      hosts.push_back(
          {.name = name_of(node.join.hostname, hosts.size()), .slots = node.join.processes});
      ranks += node.join.processes;
      if (nodes.several_machines && chosen_interfaces(options, own_environment()).empty()) {
        options.interfaces = own_block(node.stream.get());
      }
      nodes.streams.push_back(std::move(node.stream));
    }
  }
  return std::make_unique<Job>(std::move(options), plan_ranks(hosts, ranks), std::move(nodes));
}

int lead(const Options& options, const NodeConfig& config, const NodeTrust& trust,
         NodeAcceptor* acceptor) {
  const int code =
      run_with_restarts(options, [&](const Options& of_try, const std::function<bool()>& must_end) {
        return make_job(of_try, config, trust, acceptor, must_end);
      });
  if (acceptor == nullptr) return code;
  // When a signal or the timeout has ended the job before a try has begun, the other nodes have
  // joined or are about to. In all other cases this does nothing.
  const bool late = options.timeout && code == kExitDeadline;
  acceptor->turn_away(
      code, late ? time_is_over(*options.timeout) : received_signal(code - kExitSignalBase));
  return code;
}

/// Returns null when this node cannot listen but may follow another node that listens.
std::unique_ptr<NodeAcceptor> open_acceptor(const NodeConfig& config, const NodeTrust& trust,
                                            std::chrono::milliseconds host_timeout) {
  const BlockSignals blocked;  // the acceptor's thread must not receive signals
  try {
    return std::make_unique<NodeAcceptor>(config, trust, host_timeout);
  } catch (const LaunchError&) {
    if (config.hosting == Hosting::if_free) return nullptr;
    throw;
  }
}

std::string describe(const NodeConfig& config, const Options& options) {
  std::string words;
  for (const std::string& word : options.program) words += fmt::format(" {}", shell_word(word));
  return fmt::format("node {} of {}, {} ranks, job {} at {}:{}\n",
                     config.node_rank < 0 ? "?" : fmt::to_string(config.node_rank), config.nodes,
                     config.processes, config.job, config.endpoint(), words);
}

}  // namespace

int run_node(Options options) {
  const Variables own = own_environment();
  NodeConfig config = config_of(options.node, own, options.program);
  if (!options.node.platform.empty()) {
    options.program.front() = modelarts_program(options.program.front(), own);
  }
  if (!options.start_timeout && config.join_timeout) options.start_timeout = config.join_timeout;
  if (options.dry_run) {
    fmt::print("{}", describe(config, options));
    return 0;
  }
  if (config.nodes == 1) return lead(options, config, {}, nullptr);
  const NodeTrust trust = trust_of(config, own);
  if (trust.insecure) {
    fmt::print(stderr,
               "hvdrun: HVD_INSECURE=1: everybody who reaches {} can join this job and read its "
               "secret\n",
               config.endpoint());
  }
  if (config.hosting != Hosting::no) {
    if (const auto acceptor = open_acceptor(config, trust, options.host_timeout)) {
      config.node_rank = 0;
      return lead(options, config, trust, acceptor.get());
    }
  }
  return follow(options, config, trust);
}

}  // namespace hvd::launcher
