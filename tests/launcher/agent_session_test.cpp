// Tests what hvdrun accepts from an agent, mostly of an elastic job.
#include "transport/agent_session.hpp"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launcher {
namespace {

using testing::HasSubstr;

const Prepared kPrepared{.hostname = "a"};

/// Returns a session in which worker 3 runs, and worker 4 is to be started.
AgentSession running() {
  AgentSession session;
  EXPECT_EQ(session.on_frame(kPrepared), std::nullopt);
  session.on_sent(Launch{});
  session.on_sent(StartWorker{.rank = 3});
  EXPECT_EQ(session.on_frame(Started{.rank = 3, .pid = 7}), std::nullopt);
  session.on_sent(StartWorker{.rank = 4});
  return session;
}

std::string violation(AgentSession session, const Frame& frame) {
  const auto wrong = session.on_frame(frame);
  EXPECT_TRUE(wrong.has_value());
  EXPECT_TRUE(session.broken());
  return wrong.value_or("");
}

TEST(AgentSessionTest, WorkersAreStartedAfterTheLaunch) {
  AgentSession session = running();
  EXPECT_FALSE(session.all_started());
  EXPECT_EQ(session.running_ranks(), std::vector<int>{3});
  EXPECT_EQ(session.on_frame(Started{.rank = 4, .pid = 8}), std::nullopt);
  EXPECT_EQ(session.on_frame(Exited{.rank = 3, .status = SIGKILL}), std::nullopt);
  EXPECT_TRUE(session.all_started());
  EXPECT_EQ(session.running_ranks(), std::vector<int>{4});
}

TEST(AgentSessionTest, OnlyWorkersThatWereOrderedAreStarted) {
  EXPECT_THAT(violation(running(), Started{.rank = 5, .pid = 8}), HasSubstr("rank 5"));
  EXPECT_THAT(violation(running(), Started{.rank = 3, .pid = 8}), HasSubstr("before"));
}

TEST(AgentSessionTest, AWorkerThatCouldNotBeStartedHasOnlyAnEnd) {
  AgentSession session = running();
  EXPECT_EQ(session.on_frame(Exited{.rank = 4, .status = 127 << 8}), std::nullopt);
  EXPECT_EQ(session.on_frame(Output{.rank = 4, .bytes = Bytes(1)}), std::nullopt);
  EXPECT_EQ(session.running_ranks(), std::vector<int>{3});
  EXPECT_THAT(violation(session, Started{.rank = 4, .pid = 8}), HasSubstr("before"));
  EXPECT_THAT(violation(session, Exited{.rank = 4}), HasSubstr("over before"));
  EXPECT_THAT(violation(session, Exited{.rank = 5}), HasSubstr("rank 5"));
}

TEST(AgentSessionTest, OnlyARunningWorkerSpeaks) {
  AgentSession session = running();
  EXPECT_EQ(session.on_frame(ElasticMessage{.rank = 3}), std::nullopt);
  EXPECT_THAT(violation(session, ElasticMessage{.rank = 4}), HasSubstr("not started"));
  EXPECT_EQ(session.on_frame(Exited{.rank = 3, .status = SIGKILL}), std::nullopt);
  EXPECT_THAT(violation(session, ElasticMessage{.rank = 3}), HasSubstr("over before"));
}

TEST(AgentSessionTest, OnlyTheStoreThatWasAskedForIsServed) {
  AgentSession session = running();
  const Served two{.generation = 2, .store = "unix:@s", .master_host = "127.0.0.1"};
  EXPECT_THAT(violation(session, two), HasSubstr("generation 2"));
  session.on_sent(Serve{.generation = 1});
  EXPECT_THAT(violation(session, two), HasSubstr("generation 2"));
  session.on_sent(Serve{.generation = 2});
  EXPECT_EQ(session.on_frame(two), std::nullopt);
  EXPECT_THAT(violation(session, two), HasSubstr("generation 2"));  // a second time
}

TEST(AgentSessionTest, TheAddressOfAStoreIsOneThatWorkersCanUse) {
  AgentSession session = running();
  session.on_sent(Serve{.generation = 1});
  const auto served = [](const std::string& store, const std::string& host = "127.0.0.1") {
    return Served{.generation = 1, .store = store, .master_host = host};
  };
  for (const std::string& store :
       {std::string(), std::string("s"), "unix:@" + std::string(5'000, 'x'),
        "tcp:" + std::string(5'000, 'x') + ":1", std::string("tcp:10.0.0.1:1")}) {
    EXPECT_THAT(violation(session, served(store)), HasSubstr("no address")) << store;
  }
  for (const std::string& host : {std::string(), std::string(5'000, 'x'), std::string("a b")}) {
    EXPECT_THAT(violation(session, served("unix:@s", host)), HasSubstr("no host")) << host;
  }
  EXPECT_EQ(session.on_frame(served("unix:@s")), std::nullopt);
  session.on_sent(Serve{.generation = 1, .reach = RendezvousReach::network});
  EXPECT_THAT(violation(session, served("unix:@s")), HasSubstr("other machines"));
  EXPECT_EQ(session.on_frame(served("tcp:[fe80::1]:1", "fe80::1")), std::nullopt);
}

TEST(AgentSessionTest, TheAddressOfAStoreIsCheckedInOtherJobsToo) {
  const auto prepared = [](const std::string& store, const std::string& host = "127.0.0.1") {
    return Prepared{.hostname = "a", .store = store, .master_host = host};
  };
  const Plan plan = plan_ranks({{.name = "a"}, {.name = "b"}}, 2);
  AgentSession session(plan, 0, false);
  Prepare order;
  order.rendezvous = RendezvousReach::machine;
  session.on_sent(order);
  EXPECT_THAT(violation(session, prepared("s")), HasSubstr("no address"));
  EXPECT_THAT(violation(session, prepared("tcp:10.0.0.1:1")), HasSubstr("one machine"));
  EXPECT_THAT(violation(session, prepared("unix:@s", "a b")), HasSubstr("no host"));
  EXPECT_EQ(AgentSession(session).on_frame(prepared("unix:@s")), std::nullopt);
  order.rendezvous = RendezvousReach::network;
  session.on_sent(order);
  EXPECT_THAT(violation(session, prepared("unix:@s")), HasSubstr("other machines"));
  EXPECT_EQ(session.on_frame(prepared("tcp:10.0.0.1:1", "10.0.0.1")), std::nullopt);
  EXPECT_THAT(violation(AgentSession(plan, 1, false), prepared("unix:@s")),
              HasSubstr("does not serve"));
}

TEST(AgentSessionTest, AnElasticJobIsNotGoneBeforeItsEnd) {
  AgentSession session;
  EXPECT_EQ(session.on_frame(kPrepared), std::nullopt);
  session.on_sent(Launch{});
  EXPECT_THAT(violation(session, Gone{}), HasSubstr("has not ended"));
  session.on_sent(End{.signal = SIGTERM});
  EXPECT_EQ(session.on_frame(Gone{}), std::nullopt);
  EXPECT_EQ(session.on_frame(Done{}), std::nullopt);
}

TEST(AgentSessionTest, OtherJobsHaveNoWorkers) {
  AgentSession session(plan_ranks({{.name = "a"}}, 1), 0, false);
  EXPECT_EQ(session.on_frame(kPrepared), std::nullopt);
  session.on_sent(Launch{});
  EXPECT_THAT(violation(session, Exited{.rank = 0}), HasSubstr("not started"));
  EXPECT_EQ(session.on_frame(Started{.rank = 0, .pid = 8}), std::nullopt);
  EXPECT_THAT(violation(session, ElasticMessage{.rank = 0}), HasSubstr("not elastic"));
  EXPECT_THAT(violation(session, Served{.generation = 1, .store = "s"}), HasSubstr("generation 1"));
}

TEST(AgentSessionTest, AnAgentThatHasNoUserPassesNoSignalOn) {
  AgentSession session(plan_ranks({{.name = "a"}}, 1), 0, false);
  EXPECT_EQ(session.on_frame(kPrepared), std::nullopt);
  EXPECT_THAT(violation(session, Forward{.signal = SIGTERM}), HasSubstr("no user"));
}

TEST(AgentSessionTest, AnAgentSendsNoMoreOutputThanItHasCreditFor) {
  AgentSession session = running();
  EXPECT_EQ(session.on_frame(Output{.rank = 3, .bytes = Bytes(kOutputWindow)}), std::nullopt);
  EXPECT_THAT(violation(session, Output{.rank = 3, .bytes = Bytes(1)}), HasSubstr("credited"));
  EXPECT_EQ(session.take_debt(), kOutputWindow);
  EXPECT_EQ(session.on_frame(Output{.rank = 3, .bytes = Bytes(1)}), std::nullopt);
}

TEST(AgentSessionTest, AnAgentIsDoneWhenItsRanksAreGone) {
  EXPECT_THAT(violation(running(), Done{}), HasSubstr("Gone"));
}

TEST(AgentSessionTest, OrdersComeOnlyFromHvdrun) {
  EXPECT_THAT(violation(running(), StartWorker{.rank = 5}), HasSubstr("only hvdrun"));
  EXPECT_THAT(violation(running(), KillWorker{.rank = 3}), HasSubstr("only hvdrun"));
  EXPECT_THAT(violation(running(), Serve{.generation = 1}), HasSubstr("only hvdrun"));
}

}  // namespace
}  // namespace hvd::launcher
