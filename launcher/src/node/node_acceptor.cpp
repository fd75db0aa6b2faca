// Admits the other nodes to the job, on node 0.
#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/poll.hpp>

#include "base/exit_codes.hpp"
#include "node/node_admission.hpp"
#include "node/node_rendezvous.hpp"
#include "transport/agent_stream.hpp"
#include "transport/heartbeat.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kJoinPatience{1'000};
constexpr milliseconds kFarewell{500};
constexpr std::size_t kMostTurnedAway = 64;

/// Sends the last frame that a node gets. It fits into the buffer of any socket.
void send_finished(int stream, int code, const std::string& why) {
  const Bytes bytes =
      encode(Finished{.code = code, .again = false, .report = fmt::format("hvdrun: {}\n", why)});
  (void)::send(stream, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(stream, SHUT_WR);
}

bool has_ended(int stream) {
  pollfd ended{.fd = stream, .events = POLLRDHUP, .revents = 0};
  return ::poll(&ended, 1, 0) > 0;
}

/// Makes the name that a node gives for itself fit for messages.
std::string printable(std::string text) {
  const auto differs = [](char c) { return c <= ' ' || c >= '\x7f'; };
  std::replace_if(text.begin(), text.end(), differs, '?');
  return text.empty() ? "?" : text;
}

}  // namespace

NodeAcceptor::NodeAcceptor(const NodeConfig& config, const NodeTrust& trust,
                           milliseconds host_timeout)
    : config_(config), silence_limit_(LinkHeartbeat::limit(host_timeout)) {
  try {
    point_.emplace(loop_, rendezvous_address(config),
                   Identity{.job_id = config.job, .epoch = 0, .rank = -1, .secret = trust.secret},
                   [this](UniqueFd stream) { on_stream(std::move(stream)); });
  } catch (const Error& error) {
    throw LaunchError(kExitResource, fmt::format("node 0 cannot listen at {}: {}",
                                                 config.endpoint(), error.what()));
  }
}

/// Runs on the loop thread.
void NodeAcceptor::on_stream(UniqueFd stream) {
  const std::lock_guard lock(mutex_);
  if (!full_) {
    arrived_.push_back(std::move(stream));
    changed_.notify_one();
    return;
  }
  send_finished(stream.get(), kExitUsage,
                fmt::format("job '{}' at {} has all its {} nodes already", config_.job,
                            config_.endpoint(), config_.nodes));
  turned_away_.push_back(std::move(stream));
  if (turned_away_.size() > kMostTurnedAway) turned_away_.pop_front();
}

/// Waits for a stream, and shows the nodes that have joined that the network still leads to them.
std::optional<UniqueFd> NodeAcceptor::next(Deadline deadline,
                                           const std::function<bool()>& must_end) {
  std::unique_lock lock(mutex_);
  do {
    send_heartbeats();
    changed_.wait_until(lock, std::min(deadline, Clock::now() + LinkHeartbeat::kInterval),
                        [this] { return !arrived_.empty(); });
  } while (arrived_.empty() && Clock::now() < deadline && !(must_end && must_end()));
  if (arrived_.empty()) return std::nullopt;
  UniqueFd stream = std::move(arrived_.front());
  arrived_.pop_front();
  return stream;
}

void NodeAcceptor::send_heartbeats() const {
  static const Bytes kBeat = encode(Beat{});
  for (const JoinedNode& node : joined_) {
    (void)::send(node.stream.get(), kBeat.data(), kBeat.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void NodeAcceptor::reopen() {
  const std::lock_guard lock(mutex_);
  full_ = false;
}

void NodeAcceptor::turn_away(int code, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (full_) return;
  }
  const Deadline deadline = Clock::now() + kFarewell;
  std::vector<JoinedNode> told;
  for (JoinedNode& node : joined_) {
    if (has_ended(node.stream.get())) continue;  // another may come in its place
    send_finished(node.stream.get(), code, why);
    told.push_back(std::move(node));
  }
  joined_.clear();
  while (std::ssize(told) < config_.nodes - 1) {
    std::optional<UniqueFd> stream = next(deadline);
    if (!stream) break;
    if (has_ended(stream->get())) continue;  // the node may come again
    send_finished(stream->get(), code, why);
    told.push_back({std::move(*stream), {}});
  }
  drain_all(told);
}

void NodeAcceptor::drain_all(std::span<const JoinedNode> nodes) const {
  const Deadline now = Clock::now();
  for (const JoinedNode& node : nodes) {
    drain(node.stream.get(), now + kFarewell, now + silence_limit_);
  }
}

std::optional<std::vector<NodeAcceptor::JoinedNode>> NodeAcceptor::gather(milliseconds patience,
                                                                          const Hooks& hooks) {
  const Deadline deadline = Clock::now() + patience;
  joined_.clear();
  while (std::ssize(joined_) < config_.nodes - 1) {
    std::optional<UniqueFd> stream = next(deadline, hooks.must_end);
    if (hooks.must_end && hooks.must_end()) {
      if (stream) joined_.push_back({std::move(*stream), {}});  // for turn_away
      return std::nullopt;
    }
    if (!stream) {
      fail(kExitHostUnreachable,
           fmt::format("{} of {} nodes came within {:.1f} s; missing: {}", joined_.size() + 1,
                       config_.nodes, std::chrono::duration<double>(patience).count(),
                       missing_nodes(config_, joins())));
    }
    std::optional<Join> join = read_join(stream->get(), Clock::now() + kJoinPatience);
    if (!join || has_ended(stream->get())) continue;  // the node has given the stream up
    join->hostname = printable(join->hostname);
    admit({std::move(*stream), std::move(*join)});
    if (hooks.on_join) hooks.on_join(joined_.back().join);
  }
  const std::vector<int> ranks = assign_node_ranks(joins());
  std::vector<JoinedNode> by_rank(joined_.size());
  for (std::size_t i = 0; i < joined_.size(); ++i) {
    by_rank.at(static_cast<std::size_t>(ranks[i] - 1)) = std::move(joined_[i]);
  }
  joined_.clear();
  const std::lock_guard lock(mutex_);
  full_ = true;
  return by_rank;
}

void NodeAcceptor::admit(JoinedNode node) {
  // A node that went away before all nodes had joined may join again.
  std::erase_if(joined_, [](const JoinedNode& other) { return has_ended(other.stream.get()); });
  const std::vector<Join> others = joins();
  joined_.push_back(std::move(node));  // before the check, so that fail() informs this node as well
  try {
    check_join(joined_.back().join, config_, others);
  } catch (const LaunchError& error) {
    fail(error.code(), error.what());
  }
}

std::vector<Join> NodeAcceptor::joins() const {
  std::vector<Join> joins;
  for (const JoinedNode& node : joined_) joins.push_back(node.join);
  return joins;
}

void NodeAcceptor::fail(int code, const std::string& why) {
  for (const JoinedNode& node : joined_) send_finished(node.stream.get(), code, why);
  drain_all(joined_);
  throw LaunchError(code, why);
}

}  // namespace hvd::launcher
