// Tests node 0 with a node that breaks the protocol. The test itself is that node.
#include <array>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/internal/authenticated_listener.hpp>
#include <hvd/core/version.hpp>

#include "base/exit_codes.hpp"
#include "node/node_admission.hpp"
#include "node/node_rendezvous.hpp"
#include "nodes.hpp"
#include "supervise/descendants.hpp"
#include "transport/frames.hpp"

namespace hvd::launcher {
namespace {

using test::Process;
using testing::AllOf;
using testing::HasSubstr;

NodeConfig config_at(const std::string& port, int nodes) {
  NodeConfig config;
  config.nodes = nodes;
  config.port = static_cast<std::uint16_t>(std::stoi(port));
  return config;
}

void receive(int stream, std::span<std::byte> to, Deadline deadline) {
  while (!to.empty()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{.fd = stream, .events = POLLIN, .revents = 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0) {
      throw std::runtime_error("the other node said nothing");
    }
    const ssize_t size = ::recv(stream, to.data(), to.size(), 0);
    if (size <= 0) throw std::runtime_error("the other node has closed the stream");
    to = to.subspan(static_cast<std::size_t>(size));
  }
}

/// Returns the next frame of this kind and skips others.
template <typename T>
T wait_for(int stream) {
  const Deadline deadline = test::in(kPatience);
  for (;;) {
    std::array<std::byte, sizeof(std::uint32_t)> length{};
    receive(stream, length, deadline);
    Bytes body(WireReader(length, "launcher frame").u32());
    receive(stream, body, deadline);
    Frame frame = decode(body);
    if (auto* wanted = std::get_if<T>(&frame)) return std::move(*wanted);
  }
}

/// A connection to node 0 on which the test can send any frames.
class FrameNode {
 public:
  explicit FrameNode(const NodeConfig& config) : config_(config) {
    const Identity self{.job_id = config.job, .epoch = 0, .rank = -1, .secret = {}};
    stream_ = connect_authenticated(rendezvous_address(config), self, "node", test::in(kPatience));
  }

  void join(int node_rank) {
    send(Join{.version = std::string(version()),
              .node_rank = node_rank,
              .nodes = config_.nodes,
              .processes = 1,
              .hostname = "forged"});
  }
  /// Greets and sends everything up to the order to start ranks, which comes when all nodes have.
  void prepare() {
    const std::string greeting = "hvdrun-agent " + std::string(version()) + "\n";
    const auto bytes = std::as_bytes(std::span(greeting));
    send({bytes.begin(), bytes.end()});
    wait_for<Prepare>();
    send(Prepared{.hostname = "forged"});
  }
  /// Joins as node 1 with one rank and sends everything up to the start of its rank.
  void join_and_prepare() {
    join(1);
    prepare();
    wait_for<Launch>();
  }
  void send(const Frame& frame) const { send(encode(frame)); }
  void send(const Bytes& bytes) const {
    if (::send(stream_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error("cannot send");
    }
  }

  /// Returns the next frame of this kind and skips others.
  template <typename T>
  T wait_for() {
    return launcher::wait_for<T>(stream_.get());
  }

 private:
  const NodeConfig config_;
  UniqueFd stream_;
};

TEST(NodeFramesTest, ANodeRankThatTheJobDoesNotHaveIsRefusedOnEveryNode) {
  for (const int rank : {3, kMostNodes - 1}) {
    const NodeConfig config = config_at(fresh_port(), 3);
    NodeAcceptor acceptor(config, NodeTrust{}, kPatience);
    FrameNode honest(config);
    honest.join(1);
    FrameNode forged(config);
    forged.join(rank);
    const auto words = AllOf(HasSubstr("forged claims node rank " + std::to_string(rank)),
                             HasSubstr("node ranks 0 to 2"));
    try {
      (void)acceptor.gather(kPatience, {});
      FAIL() << "node rank " << rank << " was accepted";
    } catch (const LaunchError& error) {
      EXPECT_EQ(error.code(), kExitUsage);
      EXPECT_THAT(error.what(), words);
    }
    for (FrameNode* node : {&honest, &forged}) {
      const Finished over = node->wait_for<Finished>();
      EXPECT_EQ(over.code, kExitUsage);
      EXPECT_THAT(over.report, words);
    }
  }
}

TEST(NodeFramesTest, ANodeThatJoinsAndThenSaysNothingIsGivenUp) {
  const std::string port = fresh_port();
  Process leader(
      hvdrun({"--nnodes=2", "--node-rank=0", "--nproc-per-node=1", "--master-port=" + port,
              "--start-timeout=1000", "--host-timeout=2", "true"}));
  FrameNode silent(config_at(port, 2));
  silent.join(1);
  const auto result = wait(leader);
  EXPECT_EQ(result.exit_code(), kExitHostUnreachable);
  EXPECT_THAT(result.err, HasSubstr("hvdrun: forged, node 1 was not heard from for 1.4 s"));
}

TEST(NodeFramesTest, ANodeThatComesForARestartIsTurnedAwayWhenThereIsNone) {
  const NodeConfig config = config_at(fresh_port(), 2);
  NodeAcceptor acceptor(config, NodeTrust{}, kPatience);
  FrameNode first(config);
  first.join(1);
  static_cast<void>(acceptor.gather(kPatience, {}));
  acceptor.reopen();
  FrameNode again(config);  // node 0 has the stream when it is connected
  again.join(1);
  acceptor.turn_away(143, "received signal 15 (SIGTERM)");
  const Finished over = again.wait_for<Finished>();
  EXPECT_EQ(over.code, 143);
  EXPECT_FALSE(over.again);
  EXPECT_THAT(over.report, HasSubstr("received signal 15 (SIGTERM)"));
}

/// Node 0 waits for 1.5 s for the end of the first stream.
TEST(NodeFramesTest, ASignalBetweenTwoTriesEndsTheOtherNodesToo) {
  const std::string port = fresh_port();
  const NodeConfig config = config_at(port, 2);
  Process leader(
      hvdrun({"--nnodes=2", "--node-rank=0", "--nproc-per-node=1", "--master-port=" + port,
              "--start-timeout=1000", "--max-restarts=1", "sleep", "1000"}));
  std::optional<FrameNode> node(std::in_place, config);
  node->join_and_prepare();
  node->send(Started{.rank = 1, .pid = 1});
  node->send(Exited{.rank = 1, .status = 3 << 8});
  node->send(Gone{});
  node->send(Done{});
  EXPECT_TRUE(node->wait_for<Finished>().again);
  FrameNode again(config);
  again.join(1);
  leader.signal(SIGTERM);
  node.reset();
  const Finished over = again.wait_for<Finished>();
  EXPECT_EQ(over.code, 128 + SIGTERM);
  EXPECT_FALSE(over.again);
  EXPECT_EQ(wait(leader).exit_code(), 128 + SIGTERM);
}

/// Only one of the two nodes comes back for the restart.
TEST(NodeFramesTest, TheTimeoutAlsoEndsTheWaitForNodesBetweenTwoTries) {
  const std::string port = fresh_port();
  const NodeConfig config = config_at(port, 3);
  Process leader(
      hvdrun({"--nnodes=3", "--node-rank=0", "--nproc-per-node=1", "--master-port=" + port,
              "--start-timeout=1000", "--max-restarts=1", "--timeout=4", "sh", "-c", "exit 3"}));
  {
    FrameNode first(config);
    FrameNode second(config);
    first.join(1);
    second.join(2);
    first.prepare();
    second.prepare();
    int rank = 0;
    for (FrameNode* node : {&first, &second}) {
      node->wait_for<Launch>();
      node->send(Started{.rank = ++rank, .pid = 1});
      node->send(Exited{.rank = rank, .status = 0});
      node->send(Gone{});
      node->send(Done{});
    }
    for (FrameNode* node : {&first, &second}) EXPECT_TRUE(node->wait_for<Finished>().again);
  }
  FrameNode again(config);
  again.join(1);
  const std::string words = "hvdrun: the job was not over after 4.0 s\n";
  const Finished over = again.wait_for<Finished>();
  EXPECT_EQ(over.code, kExitDeadline);
  EXPECT_FALSE(over.again);
  EXPECT_EQ(over.report, words);
  const auto result = wait(leader);
  EXPECT_EQ(result.exit_code(), kExitDeadline);
  EXPECT_THAT(result.err, HasSubstr(words));
}

TEST(NodeFramesTest, ASignalWhileNodesAreMissingEndsThoseThatHaveJoined) {
  const std::string port = fresh_port();
  const NodeConfig config = config_at(port, 3);
  Process leader(hvdrun({"--nnodes=3", "--node-rank=0", "--nproc-per-node=1", "--verbose",
                         "--master-port=" + port, "--start-timeout=1000", "true"}));
  FrameNode node(config);
  node.join(1);
  leader.wait_for_err("a node on forged has joined", test::in(kPatience));
  leader.signal(SIGTERM);
  const Finished over = node.wait_for<Finished>();
  EXPECT_EQ(over.code, 128 + SIGTERM);
  EXPECT_FALSE(over.again);
  EXPECT_EQ(over.report, "hvdrun: received signal 15 (SIGTERM)\n");
  const auto result = wait(leader);
  EXPECT_EQ(result.exit_code(), 128 + SIGTERM);
  EXPECT_THAT(result.err, HasSubstr("hvdrun: received signal 15 (SIGTERM)\n"));
}

/// Node 0 of a job, whose own process would answer within milliseconds.
class ForgedNode0 {
 public:
  explicit ForgedNode0(const NodeConfig& config)
      : point_(loop_, rendezvous_address(config),
               Identity{.job_id = config.job, .epoch = 0, .rank = -1, .secret = {}},
               [this](UniqueFd stream) {
                 const std::lock_guard lock(mutex_);
                 arrived_.push_back(std::move(stream));
                 changed_.notify_one();
               }) {}

  /// Waits for a node that joins, and returns the stream to it.
  UniqueFd next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, test::in(kPatience), [&] { return !arrived_.empty(); })) {
      throw std::runtime_error("the node does not join");
    }
    UniqueFd stream = std::move(arrived_.front());
    arrived_.pop_front();
    EXPECT_TRUE(read_join(stream.get(), test::in(kPatience)));
    return stream;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<UniqueFd> arrived_;
  EventLoop loop_;
  AuthenticatedListener point_;
};

test::ProcessOptions node_1(const std::string& port) {
  return hvdrun({"--nnodes=2", "--node-rank=1", "--nproc-per-node=1", "--master-port=" + port,
                 "--start-timeout=1000", "true"});
}

TEST(NodeFramesTest, ANodeWhoseStreamEndsBeforeNode0AnswersJoinsAgain) {
  const std::string port = fresh_port();
  ForgedNode0 node_0(config_at(port, 2));
  Process node(node_1(port));
  static_cast<void>(node_0.next());
  const UniqueFd second = node_0.next();
  const Bytes last = encode(Finished{.code = 7, .again = false, .report = "over\n"});
  ASSERT_EQ(::send(second.get(), last.data(), last.size(), MSG_NOSIGNAL), std::ssize(last));
  ::shutdown(second.get(), SHUT_WR);
  const auto result = wait(node);
  EXPECT_EQ(result.exit_code(), 7);
  EXPECT_THAT(result.err, HasSubstr("over\n"));
}

TEST(NodeFramesTest, ANodeThatWasToEndDoesNotJoinAgain) {
  const std::string port = fresh_port();
  ForgedNode0 node_0(config_at(port, 2));
  Process node(node_1(port));
  const auto forwards = [&](int signal) {
    UniqueFd stream = node_0.next();
    // It forwards signals from its greeting on.
    for (std::byte one{}; one != std::byte{'\n'};) {
      receive(stream.get(), {&one, 1}, test::in(kPatience));
    }
    node.signal(signal);
    EXPECT_EQ(wait_for<Forward>(stream.get()).signal, signal);
    return stream;
  };
  static_cast<void>(forwards(SIGUSR1));  // node 0 closes the stream, and the node joins again
  const UniqueFd stream = forwards(SIGINT);
  const auto result = wait(node);  // though node 0 has not closed the stream
  EXPECT_EQ(result.exit_code(), 128 + SIGINT);
  EXPECT_THAT(result.err, HasSubstr("received signal 2 (SIGINT)"));
}

/// A node that was stopped has a heartbeat to send. Its signal comes before it knows that the
/// heartbeat is written, at least in some of the tries.
TEST(NodeFramesTest, ASignalFollowsAHeartbeat) {
  constexpr int kTries = 5;
  constexpr int kOverdueMs = 300;
  for (int i = 0; i < kTries; ++i) {
    const std::string port = fresh_port();
    ForgedNode0 node_0(config_at(port, 2));
    Process node(node_1(port));
    const UniqueFd stream = node_0.next();
    for (std::byte one{}; one != std::byte{'\n'};) {
      receive(stream.get(), {&one, 1}, test::in(kPatience));
    }
    const std::vector<pid_t> agents = children_of(node.pid());
    ASSERT_EQ(agents.size(), 1U);
    ASSERT_EQ(::kill(agents.front(), SIGSTOP), 0);
    (void)::poll(nullptr, 0, kOverdueMs);
    ASSERT_EQ(::kill(agents.front(), SIGINT), 0);
    ASSERT_EQ(::kill(agents.front(), SIGCONT), 0);
    EXPECT_EQ(wait_for<Forward>(stream.get()).signal, SIGINT);
    EXPECT_EQ(wait(node).exit_code(), 128 + SIGINT);
  }
}

TEST(NodeFramesTest, AStreamThatItsNodeHasGivenUpIsNotCounted) {
  const NodeConfig config = config_at(fresh_port(), 2);
  NodeAcceptor acceptor(config, NodeTrust{}, kPatience);
  std::optional<FrameNode> lost(std::in_place, config);
  lost->join(1);
  FrameNode node(config);  // node 0 has both streams when this one is connected
  node.join(1);
  lost.reset();
  const auto joined = acceptor.gather(kPatience, {});
  ASSERT_TRUE(joined);
  const Bytes beat = encode(Beat{});
  ASSERT_EQ(::send(joined->at(0).stream.get(), beat.data(), beat.size(), MSG_NOSIGNAL),
            std::ssize(beat));
  node.wait_for<Beat>();
}

/// hvdrun has more frames for the node than the system takes at once when Ctrl-Z comes.
TEST(NodeFramesTest, ALeaderStopsWhenTheNodesKnowThatItWill) {
  const std::string port = fresh_port();
  Process leader(hvdrun({"--nnodes=2", "--node-rank=0", "--nproc-per-node=1", "--host-timeout=1000",
                         "--master-port=" + port, "true"}));
  FrameNode node(config_at(port, 2));
  node.join_and_prepare();
  node.send(Started{.rank = 1, .pid = 1});
  constexpr int kLines = 2'000;
  Bytes lines;
  for (int i = 0; i <= kLines; ++i) {
    const std::string_view text = i < kLines ? "\n" : "ready\n";
    const auto bytes = std::as_bytes(std::span(text));
    const Bytes line = encode(Output{.rank = 1, .bytes = {bytes.begin(), bytes.end()}});
    lines.insert(lines.end(), line.begin(), line.end());  // each is answered with credit
  }
  node.send(lines);
  leader.wait_for_out("[1]<stdout>:ready\n", test::in(kPatience));
  leader.signal(SIGTSTP);
  node.wait_for<Suspend>();
  ASSERT_TRUE(stops(leader));
  leader.signal(SIGCONT);
  node.send(Exited{.rank = 1, .status = 0});
  node.send(Gone{});
  node.send(Done{});
  EXPECT_EQ(node.wait_for<Finished>().code, 0);
  EXPECT_EQ(wait(leader).exit_code(), 0);
}

Join join_as(int node_rank, int processes = 1) {
  return {.version = std::string(version()),
          .node_rank = node_rank,
          .nodes = 17,
          .processes = processes,
          .hostname = "b"};
}

TEST(NodeAdmissionTest, MoreRanksThanAJobMayHaveAreRefused) {
  const NodeConfig config = config_at("1", 17);
  std::vector<Join> others;
  for (int rank = 1; rank < 16; ++rank) others.push_back(join_as(rank, kMostNodes));
  EXPECT_NO_THROW(check_join(join_as(16, kMostNodes - 1), config, others));
  EXPECT_THROW(check_join(join_as(16, kMostNodes), config, others), LaunchError);
}

TEST(NodeAdmissionTest, NodesThatLeftTheirRankOpenTakeTheFreeOnes) {
  const std::vector<Join> joins = {join_as(-1), join_as(3), join_as(-1), join_as(1)};
  EXPECT_EQ(assign_node_ranks(joins), (std::vector<int>{2, 3, 4, 1}));
}

struct Case {
  const char* name;
  Frame frame;
  const char* words;
};

void PrintTo(const Case& one, std::ostream* to) { *to << one.name; }

class NodeFramesBadFrameTest : public testing::TestWithParam<Case> {};

TEST_P(NodeFramesBadFrameTest, EndsTheJobAndIsBlamedOnItsNode) {
  const std::string port = fresh_port();
  test::Lifeline lifeline;
  auto options = hvdrun({"--nnodes=2", "--node-rank=0", "--nproc-per-node=2",
                         "--master-port=" + port, "sh", "-c", "exec sleep 1000"});
  options.inherited = {lifeline.fd()};
  Process leader(std::move(options));
  FrameNode forged(config_at(port, 2));
  forged.join_and_prepare();
  forged.send(Started{.rank = 2, .pid = 1});
  forged.send(GetParam().frame);
  const auto result = wait(leader);
  EXPECT_EQ(result.exit_code(), kExitProtocol);
  EXPECT_THAT(result.err, AllOf(HasSubstr("hvdrun: forged, node 1 "), HasSubstr(GetParam().words)));
  const Finished over = forged.wait_for<Finished>();
  EXPECT_EQ(over.code, kExitProtocol);
  EXPECT_TRUE(lifeline.all_gone(test::in(kPatience)));
}

INSTANTIATE_TEST_SUITE_P(
    Frames, NodeFramesBadFrameTest,
    testing::Values(Case{"StartedOfAnotherHost", Started{.rank = 0, .pid = 1}, "rank 0"},
                    Case{"StartedOutOfRange", Started{.rank = 3, .pid = 1}, "rank 3"},
                    Case{"StartedAgain", Started{.rank = 2, .pid = 1}, "rank 2"},
                    Case{"ExitedOfAnotherHost", Exited{.rank = 1, .status = SIGSEGV}, "rank 1"},
                    Case{"ExitedOutOfRange", Exited{.rank = 1'000'000, .status = 0},
                         "rank 1000000"},
                    Case{"OutputOfAnotherHost", Output{.rank = 0, .bytes = Bytes(3)}, "rank 0"},
                    Case{"OutputOutOfRange", Output{.rank = 2'000'000'000, .bytes = Bytes(3)},
                         "rank 2000000000"},
                    Case{"UsageOfAnotherHost", RankUsage{.rank = 0}, "rank 0"},
                    Case{"ReportOfAnotherHost", RankAnswer{.rank = 1, .bytes = Bytes(3)}, "rank 1"},
                    Case{"GoneWhileARankRuns", Gone{}, "rank 2"},
                    Case{"DoneBeforeGone", Done{}, "Gone"},
                    Case{"PreparedAgain", Prepared{.hostname = "forged"}, "Prepared"},
                    Case{"AnOrder", End{.signal = SIGKILL}, "End"},
                    // A node may pass on signals that its user sent. SIGTSTP would stop node 0.
                    Case{"ForwardSigtstp", Forward{.signal = SIGTSTP}, "SIGTSTP"},
                    Case{"ForwardSigkill", Forward{.signal = SIGKILL}, "SIGKILL"}),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace hvd::launcher
