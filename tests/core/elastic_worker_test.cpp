// A worker's end of the socket, with the test as hvdrun. Messages wait in the socket, so that one
// thread is enough.
#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <sys/socket.h>

#include <hvd/core/internal/elastic_worker.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/core/internal/store_server.hpp>

namespace hvd::detail {
namespace {

using test::error_of;
using testing::HasSubstr;

Assignment assignment(std::uint32_t generation, int rank = 1) {
  return {generation,
          {"HVD_RANK=" + std::to_string(rank), "HVD_SIZE=3", "HVD_JOB_ID=job",
           "HVD_STORE=unix:@store", "HVD_RESTART_COUNT=" + std::to_string(generation)}};
}

Error lost(int rank, const std::string& cause, Errc code = Errc::peer_lost) {
  Fault fault;
  fault.rank = rank;
  fault.cause = cause;
  return {code, fault};
}

class ElasticWorkerTest : public testing::Test {
 protected:
  ElasticWorkerTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    hvdrun.reset(ends[0]);
    worker.emplace(UniqueFd(ends[1]));
  }
  void send(const ElasticOrder& order) { send(encode(order)); }
  void send(const Bytes& bytes) {
    EXPECT_EQ(::send(hvdrun.get(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
  }
  [[nodiscard]] Waits said() {
    Bytes bytes(kMaxElasticMessage + 1);
    const ssize_t size = ::recv(hvdrun.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    EXPECT_GT(size, 0) << "the worker has said nothing";
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    return decode_waits(bytes);
  }
  [[nodiscard]] Config next(const Error* reason = nullptr) {
    return worker->next_generation(reason).value();
  }
  void expect_protocol_error(const ElasticOrder& order, const std::string& says) {
    send(order);
    const Error error = error_of([&] { static_cast<void>(next()); });
    EXPECT_EQ(error.code(), Errc::protocol);
    EXPECT_THAT(error.what(), HasSubstr(says));
  }

  UniqueFd hvdrun;
  std::optional<ElasticWorker> worker;
};

TEST_F(ElasticWorkerTest, ItsConfigIsThatOfTheAssignmentOverTheEnvironment) {
  ::setenv("HVD_RANK", "7", 1);
  ::setenv("HVD_SIZE", "9", 1);
  ::setenv("HVD_START_TIMEOUT", "11", 1);
  send(assignment(4));
  const Config config = next();
  for (const char* name : {"HVD_RANK", "HVD_SIZE", "HVD_START_TIMEOUT"}) ::unsetenv(name);
  EXPECT_EQ(said(), Waits{});
  EXPECT_EQ(config.rank, 1);
  EXPECT_EQ(config.size, 3);
  EXPECT_EQ(config.epoch, 4U);
  EXPECT_EQ(config.generation, 0U);
  EXPECT_EQ(config.store_address, "unix:@store");
  EXPECT_EQ(config.start_timeout, std::chrono::seconds(11));
}

TEST_F(ElasticWorkerTest, SaysWhomItsErrorBlames) {
  struct Case {
    Error error;
    Waits expected;
  };
  const std::vector<Case> cases = {
      {lost(2, "connection closed"), {1, 2, true, false}},
      {lost(0, "silent for 2.0 s"), {1, 0, false, false}},
      {lost(2, "did not come", Errc::timeout), {1, 2, false, false}},
      {lost(1, "silent for 2.0 s"), {.generation = 1}},   // this rank itself
      {lost(3, "connection closed"), {.generation = 1}},  // a rank of another context
      {Error(Errc::shut_down, "shut down"), {.generation = 1}}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto generation = static_cast<std::uint32_t>(i + 1);
    send(assignment(generation));
    static_cast<void>(next());
    static_cast<void>(said());
    const bool trains = i % 2 == 0;
    if (trains) worker->has_state();
    send(Leave{});
    EXPECT_EQ(worker->next_generation(&cases[i].error), std::nullopt);
    Waits expected = cases[i].expected;
    expected.generation = generation;
    expected.start_failed = !trains;
    EXPECT_EQ(said(), expected) << cases[i].error.what();
  }
}

TEST_F(ElasticWorkerTest, AChangeBelongsToTheAssignmentBeforeIt) {
  send(assignment(1));
  static_cast<void>(next());
  EXPECT_FALSE(worker->wish().change);
  send(Change{});
  EXPECT_TRUE(worker->wish().change);
  EXPECT_TRUE(worker->wish().change);
  send(Change{});  // is read by a worker that waits already
  send(assignment(2));
  static_cast<void>(next());
  EXPECT_FALSE(worker->wish().change);
}

TEST_F(ElasticWorkerTest, RefusesWhatMakesNoSense) {
  send(assignment(2));
  static_cast<void>(next());
  expect_protocol_error(assignment(2), "generation 2 after 2");
  Assignment other = assignment(3);
  other.variables.back() = "HVD_RESTART_COUNT=2";
  expect_protocol_error(other, "HVD_RESTART_COUNT is 2 in generation 3");
  other.variables.erase(other.variables.begin());
  expect_protocol_error(other, "an assignment without HVD_RANK");
  send(Leave{});
  EXPECT_EQ(error_of([&] { static_cast<void>(worker->wish()); }).code(), Errc::protocol);
  send(Bytes(3));
  EXPECT_EQ(error_of([&] { static_cast<void>(worker->wish()); }).code(), Errc::protocol);
}

TEST_F(ElasticWorkerTest, HvdrunsEndMattersOnlyToAWorkerThatWaits) {
  send(assignment(1));
  static_cast<void>(next());
  hvdrun.reset();
  EXPECT_FALSE(worker->wish().change);
  EXPECT_EQ(error_of([&] { static_cast<void>(next()); }).code(), Errc::aborted);
}

/// A rank whose peer never comes, and hvdrun, which knows.
class ElasticStartTest : public ElasticWorkerTest {
 protected:
  [[nodiscard]] Config config(int rank, int size) {
    send(assignment(1, rank));
    Config config = next();
    config.size = size;
    config.start_timeout = std::chrono::seconds(20);
    return config;
  }
  void expect_given_up(const std::function<void()>& call) {
    EXPECT_EQ(error_of(call).code(), Errc::aborted);
  }
};

TEST_F(ElasticStartTest, NobodyServesTheStore) {
  const Config own = config(1, 2);
  send(Change{});
  expect_given_up([&] { const Session session(own); });
}

TEST_F(ElasticStartTest, AnotherRankDoesNotComeToTheStore) {
  EventLoop loop;
  const StoreServer store(loop, "unix:@", {.job_id = "job", .epoch = 1, .rank = -1, .secret = {}});
  Config own = config(1, 2);
  own.store_address = store.address();
  send(Change{});
  expect_given_up([&] { const Session session(own); });
}

TEST_F(ElasticStartTest, AnotherRankDoesNotConnect) {
  Config own = config(0, 2);
  Config other = own;
  other.rank = 1;
  other.interrupt_fd = -1;
  const auto store = make_hash_store();
  std::optional<Session> session;
  std::thread peer([&] { const Session there(other, store); });
  session.emplace(own, store);
  peer.join();
  send(Change{});
  expect_given_up(
      [&] { static_cast<void>(session->network().open(1, "never", session->start_deadline())); });
  EXPECT_EQ(error_of([&] { session->started(); }).code(), Errc::aborted);
}

TEST_F(ElasticStartTest, AContextThatHasStartedIsNotDisturbed) {
  Config own = config(0, 1);
  own.rendezvous = Rendezvous::none;
  Session session(own);
  session.started();
  send(Change{});
  EXPECT_TRUE(worker->wish().change);
}

}  // namespace
}  // namespace hvd::detail
