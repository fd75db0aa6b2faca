#include "observe/report_server.hpp"

#include <array>
#include <atomic>
#include <new>
#include <random>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/fd.hpp>

namespace hvd::observe {
namespace {

RankReport full_report() {
  RankReport report;
  report.rank = 2;
  report.size = 4;
  report.steps = 70;
  report.step = std::chrono::milliseconds{12};
  report.exposed = std::chrono::milliseconds{3};
  report.slowest = 3;
  report.slowest_cost = std::chrono::milliseconds{2};
  report.operations = 99;
  report.bytes = std::uint64_t{1} << 40;
  report.pending = 11;
  for (std::size_t i = 0; i < RankReport::kMaxPending; ++i) {
    RankReport::Pending pending;
    pending.name = std::string(RankReport::kMaxName, 'x');
    pending.kind = OpKind::allgather;
    pending.scheduled = i % 2 == 0;
    pending.age = std::chrono::milliseconds{i};
    pending.process_set = 3;
    pending.members.assign(RankReport::kMaxMembers, 1);
    report.oldest.push_back(pending);
  }
  return report;
}

TEST(RankReportTest, ComesBackAsSentWithinItsBound) {
  const Bytes bytes = encode(full_report());
  EXPECT_LE(bytes.size(), RankReport::kMaxBytes);
  const RankReport back = decode_rank_report(bytes);
  EXPECT_EQ(encode(back), bytes);
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.steps, 70U);
  EXPECT_EQ(back.exposed, std::chrono::milliseconds{3});
  EXPECT_EQ(back.slowest, 3);
  EXPECT_EQ(back.slowest_cost, std::chrono::milliseconds{2});
  EXPECT_EQ(back.pending, 11U);
  ASSERT_EQ(back.oldest.size(), RankReport::kMaxPending);
  EXPECT_EQ(back.oldest[1].kind, OpKind::allgather);
  EXPECT_EQ(back.oldest[1].age, std::chrono::milliseconds{1});
  EXPECT_EQ(back.oldest[1].members.size(), RankReport::kMaxMembers);
}

TEST(RankReportTest, WhatIsTooMuchIsLeftOut) {
  RankReport report = full_report();
  report.oldest.push_back(report.oldest.front());
  report.oldest[0].name += "and more";
  report.oldest[0].members.push_back(2);
  const RankReport back = decode_rank_report(encode(report));
  EXPECT_EQ(back.oldest.size(), RankReport::kMaxPending);
  EXPECT_EQ(back.oldest[0].name.size(), RankReport::kMaxName);
  EXPECT_TRUE(back.oldest[0].members.empty());
}

TEST(RankReportTest, EveryTruncationAndAdditionIsRefused) {
  Bytes bytes = encode(full_report());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW((void)decode_rank_report(std::span(bytes).first(size)), Error);
  }
  bytes.push_back(std::byte{0});
  EXPECT_THROW((void)decode_rank_report(bytes), Error);
}

TEST(RankReportTest, NothingButErrorsComesFromRandomBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 2'000; ++round) {
    Bytes bytes(random() % 200);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 4);
    try {
      EXPECT_EQ(encode(decode_rank_report(bytes)), bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::protocol);
    }
  }
}

class ReportServerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    asker_.reset(ends[0]);
    rank_.reset(ends[1]);
  }

  void ask() const { ASSERT_EQ(::send(asker_.get(), "?", 1, MSG_NOSIGNAL), 1); }

  /// Returns the next datagram, or nothing after 10 s.
  [[nodiscard]] Bytes answer() const {
    pollfd readable{asker_.get(), POLLIN, 0};
    if (::poll(&readable, 1, 10'000) != 1) return {};
    Bytes bytes(RankReport::kMaxBytes);
    const ssize_t size = ::recv(asker_.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    return bytes;
  }

  EventLoop loop_;
  UniqueFd asker_;
  UniqueFd rank_;
};

TEST_F(ReportServerTest, AnswersWhenAskedAndNotBefore) {
  std::atomic<int> reports{0};
  const auto server = ReportServer::on(loop_, rank_.get(), [&reports] {
    RankReport report;
    report.steps = static_cast<std::uint64_t>(++reports);
    return report;
  });
  ASSERT_NE(server, nullptr);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    loop_.run_sync([] {});
    EXPECT_EQ(reports, static_cast<int>(i) - 1);
    ask();
    EXPECT_EQ(decode_rank_report(answer()).steps, i);
  }
}

TEST_F(ReportServerTest, AnswersAgainAfterAReportThatFailed) {
  std::atomic<int> calls{0};
  const auto server = ReportServer::on(loop_, rank_.get(), [&calls] {
    if (++calls == 1) throw std::bad_alloc();
    return full_report();
  });
  ASSERT_NE(server, nullptr);
  ask();
  ask();
  EXPECT_EQ(decode_rank_report(answer()).rank, 2);
  EXPECT_EQ(calls, 2);
}

TEST(RankNoteTest, ComesBackAsSentAndNothingElseIsOne) {
  const RankNote sent{RankNote::Kind::ended, 7, true};
  const Bytes bytes = encode(sent);
  ASSERT_EQ(bytes.size(), RankNote::kBytes);
  const auto back = decode_rank_note(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(encode(*back), bytes);
  EXPECT_EQ(back->blames, 7);
  EXPECT_TRUE(back->blamed_left);
  EXPECT_FALSE(decode_rank_note(std::span(bytes).first(bytes.size() - 1)));
  EXPECT_FALSE(decode_rank_note(encode(RankReport{})));
  for (const std::size_t at : {0U, 4U, 5U}) {  // the kind, the sign of the rank, the flag
    Bytes wrong = bytes;
    wrong[at] = std::byte{0xf0};
    EXPECT_FALSE(decode_rank_note(wrong)) << at;
  }
}

TEST_F(ReportServerTest, NotesAreSentUnaskedAndTheEndIsToldOnce) {
  const auto server = ReportServer::on(loop_, rank_.get(), full_report);
  ASSERT_NE(server, nullptr);
  server->joined();
  server->ended(2, true);
  server->ended();
  ask();
  EXPECT_EQ(answer(), encode(RankNote{.kind = RankNote::Kind::joined}));
  EXPECT_EQ(answer(), encode(RankNote{RankNote::Kind::ended, 2, true}));
  EXPECT_EQ(decode_rank_report(answer()).rank, 2);
}

TEST_F(ReportServerTest, AnAskerWhoDoesNotReadStopsNobody) {
  const auto server = ReportServer::on(loop_, rank_.get(), full_report);
  ASSERT_NE(server, nullptr);
  constexpr int kMany = 2'000;  // far more than the socket takes of answers
  for (int i = 0; i < kMany; ++i) {
    if (::send(asker_.get(), "?", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) break;
  }
  loop_.run_sync([] {});  // the loop still runs
  EXPECT_EQ(decode_rank_report(answer()).rank, 2);
}

TEST_F(ReportServerTest, AnAskerWhoIsGoneDoesNoHarm) {
  const auto server = ReportServer::on(loop_, rank_.get(), full_report);
  ask();
  asker_.reset();
  loop_.run_sync([] {});
}

TEST_F(ReportServerTest, NothingIsReportedAfterItsEnd) {
  auto server = ReportServer::on(loop_, rank_.get(), full_report);
  server.reset();
  rank_.reset();
  if (::send(asker_.get(), "?", 1, MSG_NOSIGNAL) == 1) {
    EXPECT_TRUE(answer().empty());
  }
}

TEST_F(ReportServerTest, WhatElseHasTheNumberIsLeftAlone) {
  const UniqueFd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(ReportServer::on(loop_, file.get(), full_report), nullptr);
  EXPECT_EQ(ReportServer::on(loop_, 100'000, full_report), nullptr);
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd a(ends[0]);
  const UniqueFd b(ends[1]);
  EXPECT_EQ(ReportServer::on(loop_, a.get(), full_report), nullptr);
}

}  // namespace
}  // namespace hvd::observe
