// How the hvdruns of several nodes find and trust each other.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <hvd/core/event_loop.hpp>
#include <hvd/core/fd.hpp>
#include <hvd/core/meeting_point.hpp>
#include <hvd/core/secret.hpp>
#include <hvd/core/types.hpp>

#include "frames.hpp"
#include "node_options.hpp"

namespace hvd::launcher {

/// What the nodes know in advance; empty on one machine, where the kernel tells the user.
struct NodeTrust {
  Secret secret;
  bool insecure = false;  ///< anybody may join
};

/// From HVD_SECRET_FILE of `own`. Throws LaunchError (77) when it is needed and missing, or is not
/// as it has to be.
[[nodiscard]] NodeTrust trust_of(const NodePlace& place, const std::vector<std::string>& own);

/// As in core's address.hpp: TCP, or a Unix socket on one machine.
[[nodiscard]] std::string meeting_address(const NodePlace& place);

/// The numeric address of this end of a TCP stream as a block of its own, "10.0.0.1/32"; empty for
/// a Unix socket.
[[nodiscard]] std::string own_block(int stream);

/// Reads one frame, for the first one of a stream. Nothing when it does not come in time or is
/// something else. Blocks.
[[nodiscard]] std::optional<Join> read_join(int stream, Deadline deadline);

/// Node 0's side: one for all tries of a job.
class NodeLobby {
 public:
  /// Listens. Throws LaunchError (71) when the address is taken or not this machine's.
  NodeLobby(const NodePlace& place, const NodeTrust& trust);

  struct Guest {
    UniqueFd stream;
    Join join;
  };
  /// Waits for the other nodes and returns them by node rank, from 1 on. When they do not fit
  /// together or do not all come, all that came are told, and LaunchError is thrown. Afterwards
  /// others are turned away until `reopen`.
  [[nodiscard]] std::vector<Guest> gather(std::chrono::milliseconds patience);
  void reopen();

 private:
  void on_stream(UniqueFd stream);
  [[nodiscard]] std::optional<UniqueFd> next(Deadline deadline);
  void check(const Join& join);
  void seat(Guest guest);
  [[nodiscard]] std::string missing() const;
  [[noreturn]] void fail(int code, const std::string& why);

  const NodePlace place_;
  std::vector<Guest> guests_;  ///< in order of arrival
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<UniqueFd> arrived_;
  std::deque<UniqueFd> turned_away_;  ///< open, so that what they were told is read
  bool full_ = false;
  EventLoop loop_;
  std::optional<MeetingPoint> point_;
};

}  // namespace hvd::launcher
