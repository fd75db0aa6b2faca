// Holds the options of node mode (docs/how-to/node_mode.md), which give each node its place in the
// job, and works out their meaning.
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

/// The options as the user has typed them.
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
  bool use_env = false;    ///< accepted without further effect
  bool no_python = false;  ///< accepted without further effect

  /// Returns whether the user gave any of them, which makes hvdrun the agent of its node.
  [[nodiscard]] bool given() const;
};

/// Adds the options to `app`. Their names have dashes; the caller replaces underscores.
void add_node_options(CLI::App& app, NodeOptions& to);

/// Sets the platform option from a platform's variables, if no other option says how many ranks
/// there are, and refuses options that exclude node mode. `own` is hvdrun's environment. Throws
/// LaunchError (usage).
void settle_node_mode(Options& options, const std::vector<std::string>& own);

/// Says whether this node listens at the address where the nodes meet.
enum class Hosting { yes, no, if_free };

/// The meaning of the options, with defaults and environment variables applied.
struct NodeConfig {
  int nodes = 1;
  int node_rank = 0;  ///< -1: the hosting node assigns it
  int processes = 1;  ///< ranks of this node
  std::string address = "127.0.0.1";
  std::uint16_t port = 29'500;
  std::string job = "hvd-nodes";
  Hosting hosting = Hosting::yes;
  std::optional<std::chrono::milliseconds> join_timeout;

  /// Returns whether all nodes are on this machine, because other machines cannot reach the
  /// address.
  [[nodiscard]] bool one_machine() const;
  /// Returns the address and port as "A:P" or "[v6]:P".
  [[nodiscard]] std::string endpoint() const;
};

/// Returns the meaning of `options`. `own` is hvdrun's environment, `program` the program with its
/// arguments; both are read only for a platform. Throws LaunchError (usage) naming the option or
/// variable.
[[nodiscard]] NodeConfig config_of(const NodeOptions& options, const std::vector<std::string>& own,
                                   const std::vector<std::string>& program);

}  // namespace hvd::launcher
