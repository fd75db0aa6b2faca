// Plays other nodes that send frames to node 0: first to join, then, as agents, the frames of a
// job. Or it plays the agent of an elastic job. The input chooses; the state is hvdrun's own.
#include <algorithm>
#include <csignal>
#include <set>

#include <hvd/core/version.hpp>

#include "base/exit_codes.hpp"
#include "base/signals.hpp"
#include "check.hpp"
#include "node/node_admission.hpp"
#include "status/status_table.hpp"
#include "supervise/job_policy.hpp"
#include "transport/agent_session.hpp"

namespace {

using namespace hvd::launcher;
using hvd::Clock;
using hvd::fuzz::check;

/// Takes small numbers from the input, and zeros after its end.
class Choices {
 public:
  explicit Choices(std::span<const std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool left() const { return !bytes_.empty(); }
  int next() {
    if (bytes_.empty()) return 0;
    const auto value = static_cast<signed char>(bytes_.front());
    bytes_ = bytes_.subspan(1);
    return value;
  }
  int below(int end) { return static_cast<unsigned char>(next()) % end; }
  /// Decodes the next bytes into a frame, or returns a Beat when they are not a frame.
  Frame decoded() {
    const auto size = std::min<std::size_t>(static_cast<unsigned char>(next()), bytes_.size());
    const auto body = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    try {
      return decode(body);
    } catch (const hvd::Error&) {
      return Beat{};
    }
  }

 private:
  std::span<const std::byte> bytes_;
};

/// Nodes join until one does not fit. Returns how many ranks each host of the job has.
std::vector<HostSpec> join(Choices& choices) {
  NodeConfig place;
  place.nodes = 1 + choices.below(5);
  place.processes = 1 + choices.below(3);
  std::vector<Join> joined;
  while (static_cast<int>(joined.size()) < place.nodes - 1) {
    Join next{.version = std::string(hvd::version()),
              .node_rank = choices.next(),
              .nodes = place.nodes,
              .processes = 1 + choices.below(3),
              .hostname = "b"};
    if (next.node_rank < -1) {
      const Frame frame = choices.decoded();
      if (const auto* other = std::get_if<Join>(&frame)) next = *other;
      next.node_rank = std::max(next.node_rank, -1);
    }
    static_cast<void>(missing_nodes(place, joined));
    try {
      check_join(next, place, joined);
    } catch (const LaunchError& error) {
      check(error.code() == kExitUsage || error.code() == kExitProtocol);
      return {};
    }
    joined.push_back(next);
  }
  std::vector<HostSpec> hosts(static_cast<std::size_t>(place.nodes));
  hosts[0] = {.name = "a", .slots = place.processes};
  const std::vector<int> ranks = assign_node_ranks(joined);
  for (std::size_t i = 0; i < joined.size(); ++i) {
    const int rank = ranks[i];
    check(rank >= 1 && rank < place.nodes);
    check(joined[i].node_rank < 0 || joined[i].node_rank == rank);
    HostSpec& host = hosts[static_cast<std::size_t>(rank)];
    check(host.name.empty());
    host = {.name = "b", .slots = joined[i].processes};
  }
  return hosts;
}

Frame choose_frame(Choices& choices) {
  const int kind = choices.below(14);
  const int rank = choices.next();
  switch (kind) {
    case 0:
      return Prepared{.hostname = "b", .store = rank > 0 ? "unix:@s" : "", .master_host = "b"};
    case 1:
      return Started{.rank = rank, .pid = 1 + choices.next()};
    case 2:
      return Exited{.rank = rank, .status = choices.next() * 256 + choices.next()};
    case 3:
      return Output{.rank = rank, .bytes = hvd::Bytes(kMaxOutput)};
    case 4:
      return RankUsage{.rank = rank};
    case 5:
      return RankAnswer{.rank = rank, .bytes = hvd::Bytes(4)};
    case 6:
      return Gone{};
    case 7:
      return Done{};
    case 8:
      return Forward{.signal = rank};
    case 9:
      return Refused{.code = 1, .message = "no"};
    case 10:
      return ElasticMessage{.rank = rank};
    case 11:
      return Served{.generation = static_cast<std::uint32_t>(rank),
                    .store = "unix:@s",
                    .master_host = "127.0.0.1"};
    default:
      return choices.decoded();
  }
}

/// Handles frames as `Job` does, without processes and sockets.
class Receiver {
 public:
  explicit Receiver(const Plan& plan)
      : plan_(plan),
        policy_(static_cast<int>(plan.ranks.size()), {.grace = std::chrono::milliseconds{1}}),
        board_(plan, "job", Clock::time_point{}) {
    for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
      sessions_.emplace_back(plan, host, host > 0);
    }
  }

  void receive(std::size_t host, const Frame& frame) {
    AgentSession& session = sessions_[host];
    if (session.broken()) return;
    if (const auto wrong = session.on_frame(frame)) {
      check(!wrong->empty() && session.broken());
      send(policy_.on_loss(kExitProtocol, *wrong));
      for (const int rank : session.running_ranks()) {
        check(exited_.insert(rank).second);
        send(policy_.on_exit({.rank = rank, .status = SIGKILL}, Clock::time_point{}));
      }
      return;
    }
    std::visit([&](const auto& fields) { accept(host, fields); }, frame);
  }
  void send(const std::optional<Frame>& frame) {
    for (AgentSession& session : sessions_) {
      if (frame) session.on_sent(*frame);
    }
  }
  void credit() {
    for (AgentSession& session : sessions_) check(session.take_debt() <= kOutputWindow);
  }
  void finish() {
    send(policy_.on_time(Clock::time_point::max()));
    const Outcome outcome = policy_.outcome();
    check(outcome.code >= 0 && outcome.code <= 255);
    std::multiset<int> ended(outcome.ended.begin(), outcome.ended.end());
    for (const RankEnd& other : outcome.others) ended.insert(other.rank);
    if (outcome.culprit) ended.insert(outcome.culprit->rank);
    for (const int rank : ended) check(exited_.count(rank) == 1 && ended.count(rank) == 1);
    static_cast<void>(board_.table(Clock::time_point{}));
  }

 private:
  /// Checks that the rank belongs to the host.
  void check_rank(std::size_t host, int rank) const {
    check(rank >= 0 && static_cast<std::size_t>(rank) < plan_.ranks.size());
    check(plan_.ranks[static_cast<std::size_t>(rank)].host == host);
  }
  void send(const std::optional<End>& end) {
    if (end) send(std::optional<Frame>(*end));
  }

  void accept(std::size_t host, const Prepared& frame) { check(host == 0 || frame.store.empty()); }
  void accept(std::size_t, const Refused& frame) { send(policy_.on_trouble(frame.code, "no")); }
  void accept(std::size_t host, const Started& frame) {
    check_rank(host, frame.rank);
    check(started_.insert(frame.rank).second);
    board_.started(frame.rank, frame.pid);
  }
  void accept(std::size_t host, const Exited& frame) {
    check_rank(host, frame.rank);
    check(started_.count(frame.rank) == 1 && exited_.insert(frame.rank).second);
    board_.ended(frame.rank);
    send(policy_.on_exit(frame, Clock::time_point{}));
  }
  void accept(std::size_t host, const Output& frame) { check_rank(host, frame.rank); }
  void accept(std::size_t host, const RankUsage& frame) {
    check_rank(host, frame.rank);
    board_.used(frame, Clock::time_point{});
  }
  void accept(std::size_t host, const RankAnswer& frame) {
    check_rank(host, frame.rank);
    board_.said(frame, Clock::time_point{});
  }
  void accept(std::size_t host, const Forward& frame) {
    check(host > 0 && is_forwarded(frame.signal));
  }
  void accept(std::size_t host, const Gone&) { check(sessions_[host].running_ranks().empty()); }
  void accept(std::size_t host, const Done&) { check(sessions_[host].gone()); }
  void accept(std::size_t, const Beat&) {}
  template <typename T>
  void accept(std::size_t, const T&) {
    check(false);  // only hvdrun sends it
  }

  const Plan& plan_;
  JobPolicy policy_;
  StatusTable board_;
  std::vector<AgentSession> sessions_;
  std::set<int> started_;
  std::set<int> exited_;
};

/// Checks the frames of an agent that starts the workers 0, 1, … of an elastic job.
void play_elastic_agent(Choices& choices) {
  AgentSession session;
  int ordered = 0;
  std::uint32_t generation = 0;
  std::set<std::uint32_t> served;
  std::set<int> waiting;
  std::set<int> running;
  while (choices.left()) {
    const int what = choices.below(16);
    if (what == 0) session.on_sent(Launch{});
    if (what == 1) session.on_sent(End{.signal = SIGTERM});
    if (what == 2) {
      waiting.insert(ordered);
      session.on_sent(StartWorker{.rank = ordered++});
    }
    if (what == 3) session.on_sent(Serve{.generation = ++generation});
    if (what <= 3) continue;
    const Frame frame = choose_frame(choices);
    if (const auto wrong = session.on_frame(frame)) {
      check(!wrong->empty() && session.broken());
      return;
    }
    if (const auto* started = std::get_if<Started>(&frame)) {
      check(waiting.erase(started->rank) == 1 && running.insert(started->rank).second);
    } else if (const auto* exited = std::get_if<Exited>(&frame)) {
      // One that could not be started only exits.
      check(running.erase(exited->rank) + waiting.erase(exited->rank) == 1);
    } else if (const auto* message = std::get_if<ElasticMessage>(&frame)) {
      check(running.count(message->rank) == 1);
    } else if (const auto* store = std::get_if<Served>(&frame)) {
      check(store->generation == generation && served.insert(generation).second);
    } else if (std::holds_alternative<Gone>(frame)) {
      check(running.empty());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices choices(hvd::fuzz::input(data, size));
  if (choices.below(2) == 1) {
    play_elastic_agent(choices);
    return 0;
  }
  const std::vector<HostSpec> hosts = join(choices);
  int ranks = 0;
  for (const HostSpec& host : hosts) ranks += host.slots;
  if (ranks == 0 || ranks > 256) return 0;
  const Plan plan = plan_ranks(hosts, ranks);
  Receiver receiver(plan);
  while (choices.left()) {
    const int what = choices.below(16);
    if (what == 0) receiver.send(std::optional<Frame>(Launch{}));
    if (what == 1) receiver.send(std::optional<Frame>(End{.signal = SIGTERM}));
    if (what == 2) receiver.credit();
    if (what > 2) {
      const auto host = static_cast<std::size_t>(choices.below(static_cast<int>(hosts.size())));
      receiver.receive(host, choose_frame(choices));
    }
  }
  receiver.finish();
  return 0;
}
