#include "node/node_options.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <hvd/core/internal/text.hpp>

#include "base/exit_codes.hpp"
#include "base/text.hpp"
#include "cli/options.hpp"
#include "plan/cpus.hpp"
#include "plan/devices.hpp"
#include "plan/platform_modelarts.hpp"
#include "plan/this_host.hpp"
#include "transport/frames.hpp"

namespace hvd::launcher {
namespace {

constexpr int kStaticPort = 29'500;  // torchrun's default ports
constexpr int kC10dPort = 29'400;
constexpr std::size_t kMaxJobId = 128;

int count_of(std::string_view option, std::string_view text) {
  const auto count = detail::to_number<int>(text);
  if (!count || *count < 1 || *count > kMostNodes) refuse_value(option, text, "expected 1 or more");
  return *count;
}

/// Parses "N" or "N:N".
int nodes_of(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos) return count_of("--nnodes", text);
  const int least = count_of("--nnodes", text.substr(0, colon));
  const int most = count_of("--nnodes", text.substr(colon + 1));
  if (least != most) {
    refuse_value("--nnodes", text,
                 "elastic jobs are not supported; --max-restarts starts the same ranks anew");
  }
  return least;
}

int processes_of(const std::string& text, const std::vector<std::string>& own) {
  if (text == "cpu") return usable_cores();
  if (text == "gpu" || text == "auto") {
    const int gpus = count_visible_gpus(own);
    if (gpus == 0 && text == "gpu") {
      refuse_value("--nproc-per-node", text,
                   "there is no GPU that this machine's programs would see");
    }
    return gpus > 0 ? gpus : usable_cores();
  }
  const auto count = detail::to_number<int>(text);
  if (!count || *count < 1 || *count > kMostNodes) {
    refuse_value("--nproc-per-node", text, "expected 1 or more, cpu, gpu or auto");
  }
  return *count;
}

std::uint16_t port_of(std::string_view option, std::string_view text) {
  const auto port = detail::to_number<int>(text);
  if (!port || *port < 1 || *port > 65'535)
    refuse_value(option, text, "expected a port, 1 to 65535");
  return static_cast<std::uint16_t>(*port);
}

/// Accepts a name or an address that the resolver takes, and refuses text that looks like an
/// option.
void check_host(std::string_view option, const std::string& host) {
  const auto differs = [](char c) {
    return !detail::is_alphanumeric(c) && c != '.' && c != '-' && c != '_' && c != ':';
  };
  if (host.empty() || host.front() == '-' || host.size() > 253 ||
      std::any_of(host.begin(), host.end(), differs)) {
    refuse_value(option, host, "not a host name or address");
  }
}

/// Parses "A", "A:P", "[v6]", "[v6]:P" or a bare IPv6 address.
void set_endpoint(NodeConfig& config, std::string_view option, const std::string& text,
                  int default_port) {
  std::string host = text;
  std::string port;
  const auto close = text.find(']');
  if (text.starts_with('[') && close != std::string::npos) {
    host = text.substr(1, close - 1);
    port = text.substr(close + 1);
    if (!port.empty() && port.front() != ':')
      refuse_value(option, text, "expected HOST or HOST:PORT");
  } else if (std::count(text.begin(), text.end(), ':') == 1) {
    host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':'));
  }
  check_host(option, host);
  config.address = host;
  config.port = port.empty() ? static_cast<std::uint16_t>(default_port)
                             : port_of(option, std::string_view(port).substr(1));
}

struct Conf {
  std::optional<bool> is_host;
  std::optional<std::chrono::milliseconds> join_timeout;
};

Conf parse_conf(const std::string& text) {
  Conf conf;
  for (const std::string_view entry : detail::split_at(text, ',')) {
    const std::string_view key = entry.substr(0, entry.find('='));
    const std::string_view value = entry.substr(std::min(key.size() + 1, entry.size()));
    if (key == "is_host") {
      const bool yes = value == "1" || value == "true" || value == "True";
      const bool no = value == "0" || value == "false" || value == "False";
      if (!yes && !no) refuse_value("--rdzv-conf", entry, "expected 0 or 1");
      conf.is_host = yes;
    } else if (key == "join_timeout" || key == "timeout") {
      conf.join_timeout = std::chrono::seconds(count_of("--rdzv-conf", value));
    } else {
      refuse_value("--rdzv-conf", entry, "hvdrun knows is_host, join_timeout and timeout");
    }
  }
  return conf;
}

/// Decides whether this node listens, from the options about its rank and about the hosting node.
void settle_hosting(NodeConfig& config, bool c10d, const std::optional<int>& node_rank,
                    const std::optional<bool>& is_host) {
  config.node_rank = node_rank.value_or(config.nodes == 1 || is_host.value_or(false) ? 0 : -1);
  if (config.nodes == 1) return;
  if (!c10d && !node_rank) {
    throw LaunchError(kExitUsage, "--node-rank, which of the nodes this is, is missing");
  }
  if (is_host && node_rank && *is_host != (*node_rank == 0)) {
    throw LaunchError(kExitUsage,
                      fmt::format("--rdzv-conf is_host={} with --node-rank {}: node 0 hosts",
                                  *is_host ? 1 : 0, *node_rank));
  }
  if (is_host || node_rank) {
    config.hosting = is_host.value_or(node_rank == 0) ? Hosting::yes : Hosting::no;
  } else {
    config.hosting = Hosting::if_free;
  }
}

void check_job_id(const std::string& id) {
  if (id.size() > kMaxJobId || !detail::is_graphic(id)) {
    refuse_value("--rdzv-id", id, "expected 1 to 128 printable ASCII characters without blanks");
  }
}

}  // namespace

bool NodeOptions::given() const {
  return !nodes.empty() || node_rank || !processes.empty() || !master_address.empty() ||
         master_port || !rdzv_id.empty() || !rdzv_endpoint.empty() || !rdzv_backend.empty() ||
         !rdzv_conf.empty() || !platform.empty() || !init_method.empty() || rank || world_size ||
         use_env || no_python;
}

void add_node_options(CLI::App& app, NodeOptions& to) {
  const char* const group = "Where every node has a hvdrun of its own";
  const auto text = [&](const char* name, std::string& field, const char* unit, const char* what) {
    app.add_option(name, field, what)->type_name(unit)->group(group);
  };
  const auto number = [&](const char* name, std::optional<int>& field, const char* unit,
                          const char* what, int least, int most) {
    app.add_option(name, field, what)
        ->type_name(unit)
        ->check(CLI::Range(least, most))
        ->group(group);
  };
  text("--nnodes", to.nodes, "N", "Number of nodes [1]");
  number("--node-rank", to.node_rank, "R", "Which of them this is; node 0 leads", 0,
         kMostNodes - 1);
  text("--nproc-per-node", to.processes, "K", "Ranks of this node, or cpu, gpu, auto [1]");
  text("--master-addr", to.master_address, "A", "Where node 0 listens [127.0.0.1]");
  number("--master-port", to.master_port, "P", "and its port [29500]", 1, 65'535);
  text("--rdzv-id", to.rdzv_id, "ID", "Name of the job: nodes of another are refused");
  text("--rdzv-endpoint", to.rdzv_endpoint, "A[:P]", "--master-addr and --master-port in one");
  text("--rdzv-backend", to.rdzv_backend, "NAME",
       "static, or c10d: nodes are numbered as they come");
  text("--rdzv-conf", to.rdzv_conf, "K=V,...", "is_host=1: this node hosts");
  text("--platform", to.platform, "NAME", "modelarts: take what is not given from its variables");
  text("--init-method", to.init_method, "URL", "ModelArts: tcp://A:P");
  number("--rank", to.rank, "R", "ModelArts: as --node-rank", 0, kMostNodes - 1);
  number("--world-size", to.world_size, "N", "ModelArts: as --nnodes", 1, kMostNodes);
  app.add_flag("--use-env", to.use_env, "Accepted: ranks find their place in the environment")
      ->group(group);
  app.add_flag("--no-python", to.no_python, "Accepted: the program is not Python")->group(group);
}

void settle_node_mode(Options& options, const std::vector<std::string>& own) {
  const bool other_way =
      options.num_proc > 0 || !options.hosts.empty() || !options.hostfile.empty();
  if (!other_way && options.node.platform.empty() && is_modelarts(own)) {
    options.node.platform = kModelArts;
  }
  if (!options.node.given()) return;
  if (other_way || options.launcher != Launcher::automatic) {
    throw LaunchError(kExitUsage,
                      "-np, --hosts, --hostfile and --launcher do not go together with options "
                      "of a node (--nnodes, --node-rank, --nproc-per-node, …)");
  }
}

bool NodeConfig::one_machine() const {
  return nodes == 1 || address == "localhost" || address == "::1" || address.starts_with("127.");
}

std::string NodeConfig::endpoint() const {
  return address.find(':') == std::string::npos ? fmt::format("{}:{}", address, port)
                                                : fmt::format("[{}]:{}", address, port);
}

NodeConfig config_of(const NodeOptions& options, const std::vector<std::string>& own,
                     const std::vector<std::string>& program) {
  const NodeOptions filled = with_platform(options, own, program);
  const std::string backend = filled.rdzv_backend.empty() ? "static" : filled.rdzv_backend;
  if (backend != "static" && backend != "c10d") {
    refuse_value("--rdzv-backend", backend, "hvdrun knows static and c10d");
  }
  const bool c10d = backend == "c10d";
  NodeConfig config;
  if (!filled.nodes.empty()) config.nodes = nodes_of(filled.nodes);
  if (!filled.processes.empty()) config.processes = processes_of(filled.processes, own);
  if (filled.node_rank && *filled.node_rank >= config.nodes) {
    refuse_value("--node-rank", fmt::to_string(*filled.node_rank),
                 fmt::format("expected less than --nnodes, which is {}", config.nodes));
  }
  const bool by_master = !filled.master_address.empty() || filled.master_port;
  if (!filled.rdzv_endpoint.empty()) {
    if (by_master) {
      throw LaunchError(kExitUsage,
                        "--rdzv-endpoint and --master-addr, --master-port exclude each other");
    }
    set_endpoint(config, "--rdzv-endpoint", filled.rdzv_endpoint, c10d ? kC10dPort : kStaticPort);
  } else {
    if (!filled.master_address.empty()) {
      check_host("--master-addr", filled.master_address);
      config.address = filled.master_address;
    }
    config.port = static_cast<std::uint16_t>(
        filled.master_port.value_or(c10d && !by_master ? kC10dPort : kStaticPort));
  }
  if (!filled.rdzv_id.empty()) {
    check_job_id(filled.rdzv_id);
    config.job = filled.rdzv_id;
  }
  const Conf conf = parse_conf(filled.rdzv_conf);
  config.join_timeout = conf.join_timeout;
  settle_hosting(config, c10d, filled.node_rank, c10d ? conf.is_host : std::nullopt);
  return config;
}

}  // namespace hvd::launcher
