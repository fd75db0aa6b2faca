// Tests an agent of an elastic job, which is told by the test what hvdrun would tell it.
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/internal/elastic_messages.hpp>
#include <hvd/core/version.hpp>

#include "directory.hpp"
#include "hvdrun.hpp"
#include "plan/this_host.hpp"
#include "transport/agent_link.hpp"
#include "transport/agent_session.hpp"

namespace hvd::launcher {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

/// An agent, and all that it has said.
class ElasticAgent {
 public:
  explicit ElasticAgent(Words program) {
    link_.start(std::chrono::milliseconds{0},
                {.on_ready = [this] { ready_ = true; },
                 .on_frame = [this](const Frame& frame) { take(frame); },
                 .on_flushed = {},
                 .on_stderr = {},
                 .on_lost = [](const AgentLoss&) { ADD_FAILURE() << "the agent is lost"; }});
    wait_until([this] { return ready_; });
    Prepare job;
    job.version = version();
    job.job_id = "hvd-1";
    job.directory = "/";
    job.program = std::move(program);
    job.workers = 2;
    job.secret = Secret::random();
    job.binding.to = BindTo::none;
    link_.send(job);
    wait_until([this] { return session_.prepared(); });
    send(Launch{});
  }

  void send(const Frame& frame) {
    session_.on_sent(frame);
    link_.send(frame);
  }
  void tell(int worker, const detail::ElasticOrder& order) {
    send(ElasticMessage{.rank = worker, .bytes = encode(order)});
  }
  void assign(int worker, std::uint32_t generation) {
    tell(worker,
         detail::Assignment{
             .generation = generation,
             .variables = {"HVD_RANK=0", "HVD_SIZE=1", "HVD_STORE=unix:@x", "HVD_JOB_ID=hvd-1",
                           "HVD_RESTART_COUNT=" + std::to_string(generation)}});
  }
  /// Starts a worker and returns when it waits.
  void start(int worker) {
    send(StartWorker{.rank = worker});
    wait_until([this, worker] { return !said[worker].empty(); });
  }
  void wait_until(const std::function<bool()>& condition) {
    const Deadline deadline = test::in(kPatience);
    while (!condition()) {
      if (io_.run_one_until(deadline) == 0) throw std::runtime_error("nothing came: " + output);
    }
  }
  void wait_for(const std::string& text) {
    wait_until([&] { return output.find(text) != std::string::npos; });
  }
  /// Returns when the agent has done what it was told before.
  void settle() {
    usages_ = 0;
    send(StatusRequest{});
    wait_until([this] { return usages_ > 0; });
  }

  std::map<int, std::vector<Bytes>> said;  ///< by worker
  std::map<int, int> ended;                ///< wait statuses by worker
  std::string output;
  std::vector<Served> served;
  bool gone = false;
  bool done = false;

 private:
  void take(const Frame& frame) {
    const auto wrong = session_.on_frame(frame);
    ASSERT_FALSE(wrong) << *wrong;
    if (const auto* message = std::get_if<ElasticMessage>(&frame)) {
      said[message->rank].push_back(message->bytes);
    } else if (const auto* exited = std::get_if<Exited>(&frame)) {
      ended[exited->rank] = exited->status;
    } else if (const auto* text = std::get_if<Output>(&frame)) {
      for (const std::byte byte : text->bytes) output += static_cast<char>(byte);
    } else if (const auto* store = std::get_if<Served>(&frame)) {
      served.push_back(*store);
    }
    usages_ += std::holds_alternative<RankUsage>(frame) ? 1 : 0;
    gone = gone || std::holds_alternative<Gone>(frame);
    done = done || std::holds_alternative<Done>(frame);
  }

  boost::asio::io_context io_;
  AgentLink link_{io_,
                  {.path = HVDRUN,
                   .arguments = {"hvdrun", std::string(kAgentArgument)},
                   .variables = own_environment(),
                   .via = {}}};
  AgentSession session_;
  bool ready_ = false;
  int usages_ = 0;
};

TEST(ElasticAgentTest, WorkersAreStartedWhileOthersRun) {
  ElasticAgent agent({ELASTIC_WORKER});
  agent.start(0);
  agent.assign(0, 1);
  agent.wait_for("generation 1: rank 0 of 1");
  agent.start(1);
  EXPECT_EQ(detail::decode_waits(agent.said[1].at(0)), detail::Waits{});
  agent.tell(0, detail::Change{});
  agent.wait_until([&] { return agent.said[0].size() == 2; });
  EXPECT_EQ(detail::decode_waits(agent.said[0].at(1)), detail::Waits{.generation = 1});
  agent.assign(0, 2);
  agent.wait_for("generation 2: rank 0 of 1");
  EXPECT_TRUE(agent.ended.empty());
}

TEST(ElasticAgentTest, AWorkerThatCannotBeStartedDisturbsNoOther) {
  const Directory directory;
  const auto program = directory.path() / "worker";
  std::filesystem::copy_file(ELASTIC_WORKER, program);
  ElasticAgent agent({program});
  agent.start(0);
  agent.assign(0, 1);
  agent.wait_for("generation 1: rank 0 of 1");
  std::filesystem::rename(program, directory.path() / "moved");
  agent.send(StartWorker{.rank = 1});
  agent.tell(1, detail::Change{});
  agent.wait_for("worker': it or its interpreter was not found\n");
  EXPECT_EQ(WEXITSTATUS(agent.ended.at(1)), 127);
  std::filesystem::rename(directory.path() / "moved", program);
  agent.start(2);
  agent.tell(0, detail::Change{});
  agent.wait_until([&] { return agent.said[0].size() == 2; });
  EXPECT_FALSE(agent.ended.contains(0));
}

TEST(ElasticAgentTest, TheGroupIsNotGoneBeforeTheEnd) {
  ElasticAgent agent({ELASTIC_WORKER});
  agent.start(0);
  agent.start(1);
  agent.send(KillWorker{.rank = 0});
  agent.wait_until([&] { return agent.ended.contains(0); });
  EXPECT_EQ(WTERMSIG(agent.ended[0]), SIGKILL);
  agent.tell(1, detail::Leave{});
  agent.wait_until([&] { return agent.ended.contains(1); });
  EXPECT_EQ(agent.ended[1], 0);
  agent.start(2);  // although no other process of the job is left
  EXPECT_FALSE(agent.gone);
  agent.send(End{.signal = SIGTERM, .grace = std::chrono::seconds{5}});
  agent.wait_until([&] { return agent.gone && agent.done; });
  EXPECT_TRUE(agent.ended.contains(2));
}

TEST(ElasticAgentTest, AnEndWithoutWorkersIsTheEnd) {
  ElasticAgent agent({ELASTIC_WORKER});
  agent.send(End{.signal = SIGTERM, .grace = std::chrono::seconds{5}});
  agent.wait_until([&] { return agent.gone && agent.done; });
}

TEST(ElasticAgentTest, EveryGenerationHasAStoreOfItsOwn) {
  ElasticAgent agent({ELASTIC_WORKER});
  for (const std::uint32_t generation : {1U, 2U}) {
    agent.send(Serve{.generation = generation});
    agent.wait_until([&] { return agent.served.size() == generation; });
    EXPECT_EQ(agent.served.back().generation, generation);
    EXPECT_THAT(agent.served.back().store, HasSubstr("unix:@"));
  }
  EXPECT_NE(agent.served[0].store, agent.served[1].store);
}

TEST(ElasticAgentTest, AWorkerCannotFloodHvdrun) {
  ElasticAgent agent({ELASTIC_WORKER, "floods"});
  agent.start(0);
  agent.wait_for("no more room");
  agent.settle();
  EXPECT_EQ(agent.said[0].size(), 2U);
  agent.tell(0, detail::Change{});
  agent.wait_until([&] { return agent.said[0].size() >= 4; });
  agent.settle();
  EXPECT_EQ(agent.said[0].size(), 4U);
}

TEST(ElasticAgentTest, AWorkerThatReadsNothingIsKilled) {
  ElasticAgent agent({ELASTIC_WORKER, "deaf"});
  agent.send(StartWorker{.rank = 0});
  for (int i = 0; i < 5'000; ++i) agent.tell(0, detail::Change{});
  agent.wait_until([&] { return agent.ended.contains(0); });
  EXPECT_EQ(WTERMSIG(agent.ended[0]), SIGKILL);
}

// A GPU that is chosen by the place is free, because the process that had it has ended.
TEST(ElasticAgentTest, ANewWorkerGetsThePlaceOfOneThatHasEnded) {
  ElasticAgent agent(
      {"sh", "-c", "echo $HVD_WORKER is at $HVD_WORKER_PLACE.; exec $0", ELASTIC_WORKER});
  agent.start(0);
  agent.start(1);
  agent.wait_for("0 is at 0.");
  agent.wait_for("1 is at 1.");
  agent.send(KillWorker{.rank = 0});
  agent.wait_until([&] { return agent.ended.contains(0); });
  agent.start(2);
  agent.wait_for("2 is at 0.");
}

/// A process that has left the process group of its worker is known by HVD_WORKER.
TEST(ElasticAgentTest, DescendantsEndWithTheirWorker) {
  ElasticAgent agent(
      {"sh", "-c", "setsid sleep 1000 & echo child $! of $HVD_WORKER.; exec $0", ELASTIC_WORKER});
  agent.start(4);
  agent.wait_for(" of 4.");
  const pid_t child = std::stoi(agent.output.substr(agent.output.find("child ") + 6));
  const UniqueFd ended(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  ASSERT_TRUE(ended);
  agent.send(KillWorker{.rank = 4});
  pollfd over{.fd = ended.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&over, 1, 30'000), 1);
}

}  // namespace
}  // namespace hvd::launcher
