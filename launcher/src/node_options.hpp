// The command line of node mode (docs/node_mode.md): what every node is told about itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace hvd::launcher {

struct Options;

/// As typed.
struct NodeOptions {
  std::string nodes;
  std::optional<int> node_rank;
  std::string processes;
  std::string master_address;
  std::optional<int> master_port;
  std::string rdzv_id;
  std::string rdzv_endpoint;
  std::string rdzv_backend;
  std::string rdzv_conf;
  std::string platform;
  std::string init_method;  ///< this and the next two count nodes, as ModelArts does
  std::optional<int> rank;
  std::optional<int> world_size;
  bool use_env = false;    ///< means nothing more here
  bool no_python = false;  ///< likewise

  /// Whether hvdrun is one node's agent.
  [[nodiscard]] bool given() const;
};

/// Names with dashes; underscores are the caller's to replace.
void add_node_options(CLI::App& app, NodeOptions& to);

/// Takes a platform's variables for its option where nothing else says how many ranks there are,
/// and refuses options that exclude node mode. `own` is hvdrun's environment. Throws LaunchError
/// (usage).
void settle_node_mode(Options& options, const std::vector<std::string>& own);

/// Who listens where the nodes meet.
enum class Hosting { yes, no, if_free };

/// What they mean.
struct NodePlace {
  int nodes = 1;
  int node_rank = 0;  ///< -1: as the hosting node says
  int processes = 1;  ///< ranks of this node
  std::string address = "127.0.0.1";
  std::uint16_t port = 29'500;
  std::string job = "hvd-nodes";
  Hosting hosting = Hosting::yes;
  std::optional<std::chrono::milliseconds> join_timeout;

  /// All nodes are on this machine, because the address leads nowhere else.
  [[nodiscard]] bool one_machine() const;
  /// "A:P", or "[v6]:P"
  [[nodiscard]] std::string endpoint() const;
};

/// `own` is hvdrun's environment, `program` the program with its arguments; both are read only for
/// a platform. Throws LaunchError (usage) naming the option or variable.
[[nodiscard]] NodePlace place_of(const NodeOptions& options, const std::vector<std::string>& own,
                                 const std::vector<std::string>& program);

}  // namespace hvd::launcher
