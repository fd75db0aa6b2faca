// Lets the hvdruns of several nodes find and trust each other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <hvd/core/internal/authenticated_listener.hpp>
#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/core/types.hpp>

#include "node/node_options.hpp"
#include "transport/frames.hpp"

namespace hvd::launcher {

/// The means by which a node trusts the others. The secret is empty when all nodes are on one
/// machine, where the kernel reports which user is at the other end of a Unix socket.
struct NodeTrust {
  Secret secret;
  bool insecure = false;  ///< any process may join
};

/// Reads the file that HVD_SECRET_FILE in the environment `own` names. Throws LaunchError (77) when
/// the file is needed and missing, or when it is not a file of 32 bytes that only this user reads.
[[nodiscard]] NodeTrust trust_of(const NodeConfig& config, const std::vector<std::string>& own);

/// Returns the address at which the nodes meet, as address.hpp of core writes it: TCP, or a Unix
/// socket where all nodes are on one machine.
[[nodiscard]] std::string rendezvous_address(const NodeConfig& config);

/// Returns the numeric address of this end of a TCP stream as an address block, such as
/// "10.0.0.1/32", or an empty text for a Unix socket.
[[nodiscard]] std::string own_block(int stream);

/// Reads the first frame of a stream. Returns nothing when no frame arrives in time, or when it is
/// not a Join. Blocks until then.
[[nodiscard]] std::optional<Join> read_join(int stream, Deadline deadline);

/// Node 0's end that accepts connections. It lives for the whole job, with its restarts.
class NodeAcceptor {
 public:
  /// Listens. Throws LaunchError (71) when the address is taken or does not belong to this machine.
  /// A node may be silent for about `host_timeout` and still receive the reason why it is refused.
  NodeAcceptor(const NodeConfig& config, const NodeTrust& trust,
               std::chrono::milliseconds host_timeout);

  struct JoinedNode {
    UniqueFd stream;
    Join join;
  };
  struct Hooks {
    std::function<void(const Join&)> on_join{};  ///< called for each node that joins
    std::function<bool()> must_end{};            ///< asked at least every 1.2 s
  };
  /// Waits for the other nodes and returns them by node rank, from 1 on, or nothing once
  /// `must_end` returns true. When a node does not fit (see check_join) or one is missing after
  /// `patience`, every node that has joined receives the reason, and LaunchError is thrown. Once
  /// all have joined, further nodes are turned away until `reopen`.
  [[nodiscard]] std::optional<std::vector<JoinedNode>> gather(std::chrono::milliseconds patience,
                                                              const Hooks& hooks);
  void reopen();
  /// Gives the nodes that have come for a job which has not begun, or come within a moment, the
  /// reason why it has ended. Does nothing while further nodes are turned away anyway.
  void turn_away(int code, const std::string& why);

 private:
  void on_stream(UniqueFd stream);
  [[nodiscard]] std::optional<UniqueFd> next(Deadline deadline,
                                             const std::function<bool()>& must_end = nullptr);
  void send_heartbeats() const;
  void admit(JoinedNode node);
  [[nodiscard]] std::vector<Join> joins() const;
  [[noreturn]] void fail(int code, const std::string& why);
  void drain_all(std::span<const JoinedNode> nodes) const;

  const NodeConfig config_;
  const std::chrono::milliseconds silence_limit_;
  std::vector<JoinedNode> joined_;  ///< in order of arrival
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<UniqueFd> arrived_;
  std::deque<UniqueFd> turned_away_;  ///< kept open until the other side has read the reason
  bool full_ = false;
  EventLoop loop_;
  std::optional<AuthenticatedListener> point_;
};

}  // namespace hvd::launcher
