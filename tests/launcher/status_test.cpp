#include <cstddef>

#include <boost/asio/io_context.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/process_usage.hpp"
#include "base/descriptors.hpp"
#include "status/status_socket.hpp"
#include "status/status_table.hpp"
#include "supervise/rank_inquiry.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

RankReport::Pending pending(const std::string& name, milliseconds age) {
  RankReport::Pending one;
  one.name = name;
  one.age = age;
  return one;
}

class StatusBoardTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < 4; ++rank) board_.started(rank, 100 + rank);
  }

  void say(int rank, std::vector<RankReport::Pending> oldest, std::uint32_t more = 0,
           int slowest = -1) {
    RankReport report;
    report.rank = rank;
    report.size = 4;
    report.steps = 70;
    report.step = milliseconds{50};
    report.exposed = milliseconds{10};
    report.slowest = slowest;
    report.slowest_cost = milliseconds{slowest < 0 ? 0 : 20};
    report.pending = static_cast<std::uint32_t>(oldest.size()) + more;
    report.oldest = std::move(oldest);
    board_.said({.rank = rank, .bytes = encode(report)}, now_);
  }

  Clock::time_point now_ = Clock::now();
  Plan plan_ = plan_ranks({{.name = "a", .slots = 2}, {.name = "b", .slots = 2}}, 4);
  StatusTable board_{plan_, "hvd-1", now_};
};

TEST_F(StatusBoardTest, ALinePerRankWithWhatIsKnown) {
  board_.used({.rank = 1, .cpu = milliseconds{1000}, .memory = std::uint64_t{300} << 20}, now_);
  now_ += seconds{2};
  board_.used({.rank = 1, .cpu = milliseconds{4000}, .memory = std::uint64_t{310} << 20}, now_);
  say(1, {});
  board_.said({.rank = 2, .bytes = Bytes(3)}, now_);
  board_.ended(3);
  const auto lines = board_.lines(now_ + seconds{1}, 10);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_THAT(lines[1], HasSubstr("has not joined"));
  for (const char* part : {"1 a ", "101", "150%", "310 MiB", "70", "20.00", "20%", "1.0 s"}) {
    EXPECT_THAT(lines[2], HasSubstr(part));
  }
  EXPECT_THAT(lines[3], testing::AllOf(HasSubstr("2 b "), HasSubstr("no report")));
  EXPECT_THAT(lines[4], HasSubstr("over"));
}

TEST_F(StatusBoardTest, TheSlowestRankIsNamedWithItsCost) {
  say(0, {});
  say(1, {});
  EXPECT_THAT(board_.waits(now_), IsEmpty());
  for (const int rank : {1, 3}) say(rank, {}, 0, 2);
  EXPECT_THAT(
      board_.waits(now_),
      ElementsAre("rank 2 is the slowest: the others wait for it for 20.0 ms of each step"));
}

TEST_F(StatusBoardTest, GpusHaveColumnsOnceSomebodyUsesOne) {
  board_.used({.rank = 0, .cpu = {}, .memory = 0}, now_);
  say(1, {});
  EXPECT_THAT(board_.table(now_), Not(HasSubstr("gpu")));
  board_.used({.rank = 1,
               .cpu = {},
               .memory = std::uint64_t{5} << 20,
               .gpu_memory = std::uint64_t{40} << 30,
               .gpu_load = std::uint8_t{57}},
              now_);
  const auto lines = board_.lines(now_, 10);
  EXPECT_THAT(lines[0], HasSubstr("    memory  gpu   gpu mem     steps"));
  EXPECT_THAT(lines[1], HasSubstr("     0 MiB    -         -  has not joined"));
  EXPECT_THAT(lines[2], HasSubstr("     5 MiB  57%  40.0 GiB        70    20.00"));
}

TEST_F(StatusBoardTest, BoundRanksAreShownWithTheirCpus) {
  EXPECT_THAT(board_.table(now_), Not(HasSubstr("bound to")));
  board_.started(0, 100, "0-3");
  EXPECT_THAT(board_.lines(now_, 10)[1], HasSubstr("     100      0-3      - "));
  board_.started(1, 101, "0,2,4,6,8,10,12,14,16");
  const auto lines = board_.lines(now_, 10);
  EXPECT_THAT(lines[0], HasSubstr("     pid         bound to    cpu "));
  EXPECT_THAT(lines[1], HasSubstr("     100              0-3      - "));
  EXPECT_THAT(lines[2], HasSubstr("     101 0,2,4,6,8,10,12,      - "));
  EXPECT_THAT(lines[3], HasSubstr("     102                -      - "));
}

TEST_F(StatusBoardTest, ALongHostNameIsCutAndShortOnesTakeNoRoom) {
  EXPECT_EQ(board_.lines(now_, 10)[1].find("0 a        100"), 4U);
  const Plan plan = plan_ranks({{.name = "a-host-with-a-long-name.example", .slots = 1}}, 1);
  StatusTable board(plan, "hvd-1", now_);
  board.started(0, 100);
  EXPECT_THAT(board.lines(now_, 10)[1], HasSubstr("0 a-host-with-a-lo     100 "));
  EXPECT_EQ(board.lines(now_, 10)[0].find("pid"), board.lines(now_, 10)[1].find("100"));
}

TEST_F(StatusBoardTest, NamesWhomEachWaitsFor) {
  for (const int rank : {0, 2, 3}) say(rank, {pending("grad.w", seconds{12})});
  say(1, {});
  EXPECT_THAT(board_.waits(now_),
              ElementsAre("ranks 0, 2-3 wait for rank 1: allreduce 'grad.w' for 12.0 s"));
  EXPECT_THAT(board_.summary(now_), HasSubstr("wait for rank 1"));
  EXPECT_THAT(board_.table(now_), HasSubstr("job hvd-1, 4 ranks"));
}

TEST_F(StatusBoardTest, TwoGroupsWaitForEachOther) {
  for (const int rank : {0, 1}) say(rank, {pending("a", seconds{2})});
  for (const int rank : {2, 3}) say(rank, {pending("b", seconds{3})});
  EXPECT_THAT(board_.waits(now_),
              ElementsAre("ranks 0-1 wait for ranks 2-3: allreduce 'a' for 2.0 s",
                          "ranks 2-3 wait for ranks 0-1: allreduce 'b' for 3.0 s"));
}

TEST_F(StatusBoardTest, WhatAllHaveSubmittedIsBeingWorkedOn) {
  for (const int rank : {0, 1, 2, 3}) say(rank, {pending("big", seconds{2})});
  EXPECT_THAT(board_.waits(now_), ElementsAre("ranks 0-3 work on allreduce 'big' for 2.0 s"));
}

TEST_F(StatusBoardTest, OnlyMembersOfTheProcessSetAreWaitedFor) {
  auto one = pending("half", seconds{2});
  one.process_set = 1;
  one.members = {0, 2};
  say(0, {one});
  for (const int rank : {1, 2, 3}) say(rank, {});
  EXPECT_THAT(board_.waits(now_),
              ElementsAre("rank 0 waits for rank 2: allreduce 'half' for 2.0 s"));
}

TEST_F(StatusBoardTest, ARankWithMoreThanItToldIsNotAccused) {
  say(0, {pending("x", seconds{2})});
  say(1, {pending("y", milliseconds{10})}, 9);
  for (const int rank : {2, 3}) say(rank, {pending("x", seconds{2})});
  EXPECT_THAT(board_.waits(now_), ElementsAre("ranks 0, 2-3 work on allreduce 'x' for 2.0 s"));
}

TEST_F(StatusBoardTest, ShortWaitsAreNotWorthAWord) {
  for (const int rank : {0, 2, 3}) say(rank, {pending("x", milliseconds{20})});
  say(1, {});
  EXPECT_THAT(board_.waits(now_), IsEmpty());
}

TEST_F(StatusBoardTest, ASilentRankIsNamedAndShownFirst) {
  for (const int rank : {0, 1, 2}) say(rank, {});
  now_ += seconds{5};
  for (const int rank : {0, 1, 3}) say(rank, {});
  EXPECT_THAT(board_.waits(now_), ElementsAre("rank 2 has not answered for 5.0 s"));
  const auto lines = board_.lines(now_, 3);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines[1], HasSubstr("2 b "));
  EXPECT_THAT(lines[3], HasSubstr("2 more ranks"));
}

TEST_F(StatusBoardTest, NamesFromRanksCannotWriteToTheTerminal) {
  for (const int rank : {0, 1, 2, 3}) say(rank, {pending("\x1b[2J\nx", seconds{2})});
  EXPECT_THAT(board_.table(now_), Not(HasSubstr("\x1b")));
  EXPECT_THAT(board_.waits(now_).front(), Not(HasSubstr("\n")));
}

TEST_F(StatusBoardTest, RanksThatDoNotExistAreIgnored) {
  board_.said({.rank = 4, .bytes = {}}, now_);
  board_.used({.rank = 1 << 30, .cpu = {}, .memory = 0}, now_);
  EXPECT_FALSE(board_.all_heard_since(now_));
}

TEST(ProcessUsageTest, ReadsWhatTheKernelWrites) {
  const auto usage = parse_usage("7 (a) b) (c) S 1 7 7 0 -1 4194304 9 0 0 0 250 50 0 0 20 0 1 0 5",
                                 "900 300 100 1 0 200 0");
  EXPECT_EQ(usage.cpu, milliseconds{300 * 1000 / ::sysconf(_SC_CLK_TCK)});
  EXPECT_EQ(usage.memory, 300U * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(parse_usage("", "").memory, 0U);
  EXPECT_EQ(parse_usage("7 (a) S 1", "x").cpu, milliseconds{0});
  EXPECT_GT(usage_of(::getpid()).memory, 0U);
}

TEST(GpuUseTest, CountsTheGpusOfTheseProcessesOnly) {
  const std::vector<GpuState> gpus = {
      {.load = std::uint8_t{30}, .processes = {{.pid = 7, .memory = 100}, {.pid = 8, .memory = 5}}},
      {.load = std::uint8_t{90}, .processes = {{.pid = 9, .memory = 1'000}}},
      {.load = std::uint8_t{40}, .processes = {{.pid = 10, .memory = 20}, {.pid = 11}}},
      {.processes = {{.pid = 12, .memory = 3}}}};
  const auto use = [&](std::vector<pid_t> pids) { return gpu_use(gpus, pids); };
  EXPECT_EQ(use({7, 10}).memory, 120U);
  EXPECT_EQ(use({7, 10}).load, 40);
  EXPECT_FALSE(use({11}).memory);  // the driver does not tell
  EXPECT_EQ(use({11}).load, 40);
  EXPECT_EQ(use({12}).memory, 3U);
  EXPECT_FALSE(use({12}).load);
  EXPECT_FALSE(use({1}).memory || use({1}).load);
}

/// The agent's end of the socket and a rank's.
class RankInquiryTest : public testing::Test {
 protected:
  void say(std::string_view bytes) const {
    (void)::send(rank_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  void say(const RankNote& note) const {
    const Bytes bytes = encode(note);
    (void)::send(rank_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  [[nodiscard]] RankEnd end_after(const std::vector<RankNote>& notes, int status = 0) {
    for (const RankNote& note : notes) say(note);
    rank_.reset();
    return inquiry_.complete({.rank = 1, .status = status});
  }

  const RankNote joined_{.kind = RankNote::Kind::joined};
  const RankNote ended_{.kind = RankNote::Kind::ended};

  boost::asio::io_context io_{1};
  SocketPair pair_ = make_socket_pair(SOCK_SEQPACKET);
  UniqueFd rank_ = std::move(pair_.theirs);
  RankInquiry inquiry_{io_, std::move(pair_.ours)};
};

TEST_F(RankInquiryTest, OneThatNeverJoinedHasDesertedNobody) {
  EXPECT_FALSE(end_after({}).without_shutdown);
}
TEST_F(RankInquiryTest, WhatHasJoinedAndNotEndedHas) {
  EXPECT_TRUE(end_after({joined_, ended_, joined_}).without_shutdown);
}
TEST_F(RankInquiryTest, WhatHasEndedHasNot) {
  EXPECT_FALSE(end_after({joined_, joined_, ended_, ended_}).without_shutdown);
}
TEST_F(RankInquiryTest, WhatHasFailedHasNot) {
  EXPECT_FALSE(end_after({joined_}, SIGKILL).without_shutdown);
}

TEST_F(RankInquiryTest, TheLastErrorSaysWhomTheRankBlames) {
  const RankEnd end = end_after({joined_, {RankNote::Kind::ended, 2, true}}, SIGABRT);
  EXPECT_EQ(std::tie(end.rank, end.status, end.blames, end.blamed_left),
            std::make_tuple(1, SIGABRT, 2, true));
}
TEST_F(RankInquiryTest, ARankThatHasJoinedAgainBlamesNobody) {
  EXPECT_EQ(end_after({joined_, {RankNote::Kind::ended, 2, true}, joined_}, SIGABRT).blames, -1);
}

TEST_F(RankInquiryTest, ARankThatStopsHasNotEnded) {
  say(joined_);
  EXPECT_FALSE(inquiry_.stops());
  say({.kind = RankNote::Kind::stops});
  EXPECT_TRUE(inquiry_.stops());
  EXPECT_TRUE(end_after({}).without_shutdown);
}

TEST_F(RankInquiryTest, NothingIsSaidOfOneWhoseNotesDidNotFit) {
  std::vector<RankNote> notes{joined_};
  for (int i = 0; i < 1'000; ++i) notes.insert(notes.end(), {joined_, ended_});
  notes.push_back({RankNote::Kind::ended, 2, true});
  const RankEnd end = end_after(notes);
  EXPECT_FALSE(end.without_shutdown);
  EXPECT_EQ(end.blames, -1);
}

TEST_F(RankInquiryTest, ANoteIsNoAnswer) {
  std::string answer;
  inquiry_.ask([&](const Bytes& bytes) {
    answer.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  say(joined_);
  say("steps");
  while (answer.empty() && io_.run_one_for(seconds{10}) > 0) {
  }
  EXPECT_EQ(answer, "steps");
  EXPECT_TRUE(end_after({}).without_shutdown);
}

/// While it exists, this process has no free descriptor.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    UniqueFd next(::dup(STDERR_FILENO));
    // All smaller numbers are taken, so the limit forbids the next ones.
    const rlimit few{.rlim_cur = static_cast<rlim_t>(next.get()), .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(StatusSocketTest, AnswersWhenThereAreDescriptorsAgain) {
  boost::asio::io_context io;
  const std::string job = "hvd-test-" + std::to_string(::getpid());
  int asked = 0;
  const StatusServer server(io, job, [&](const std::function<void(std::string)>& answer) {
    ++asked;
    answer("fine\n");
  });
  const UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "hvd-status-" + std::to_string(::getuid()) + "-" + job;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  {
    const NoDescriptors none;
    ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address),
                        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
              0);
    EXPECT_GT(io.run_one_for(seconds{30}), 0U);  // the connection is not accepted
    EXPECT_EQ(asked, 0);
  }
  while (asked == 0 && io.run_one_for(seconds{30}) > 0) {
  }
  EXPECT_EQ(asked, 1);
}

TEST(StatusSocketTest, ListsTheJobsOfThisUser) {
  EXPECT_THAT(parse_jobs("Num RefCount\n"
                         "f: 2 0 10000 1 01 55 @hvd-status-7-hvd-a\n"
                         "f: 3 0 0 1 03 56 @hvd-status-7-hvd-a\n"
                         "f: 2 0 10000 1 01 57 @hvd-status-77-hvd-b\n"
                         "f: 2 0 10000 1 01 58 /tmp/hvd-status-7-hvd-c\n",
                         7),
              ElementsAre("hvd-a"));
}

}  // namespace
}  // namespace hvd::launcher
