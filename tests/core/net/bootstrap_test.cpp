// Tests how ranks agree at the start of a job, and who is named when one does not come.
#include <gmock/gmock.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>

#include <hvd/core/internal/bootstrap.hpp>

#include "expect_error.hpp"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using test::bytes_of;
using test::expect_error;
using test::in;
using test::soon;
using testing::HasSubstr;

TEST(BootstrapTest, EveryRankGetsWhatRankZeroDecides) {
  const auto store = make_hash_store();
  test::expect_threads(5, [&](int rank) {
    const Bootstrap bootstrap(*store, rank, 5, soon());
    const std::string own(static_cast<std::size_t>(rank), 'x');  // rank 0's is empty
    EXPECT_EQ(bootstrap.share("shared", [] { return std::string("a\0b", 3); }),
              std::string("a\0b", 3));
    EXPECT_EQ(bootstrap.decide("longest", own, [](const auto& records) { return records.back(); }),
              "xxxx");
    EXPECT_EQ(bootstrap.exchange("all", own),
              (std::vector<std::string>{"", "x", "xx", "xxx", "xxxx"}));
  });
}

TEST(BootstrapTest, JobsDoNotSeeEachOther) {
  const auto store = make_hash_store();
  test::expect_threads(3, [&](int rank) {
    for (const std::string job : {"0", "1", "1-a"}) {
      const Bootstrap bootstrap(*store, rank, 3, soon(), job);
      EXPECT_EQ(bootstrap.exchange("all", job), std::vector<std::string>(3, job));
    }
  });
}

TEST(BootstrapTest, RankZerosErrorIsEverybodysError) {
  const auto store = make_hash_store();
  test::expect_threads(3, [&](int rank) {
    const Bootstrap bootstrap(*store, rank, 3, soon());
    const Error plain = test::error_of([&] {
      bootstrap.share("a", []() -> std::string { throw Error(Errc::mismatch, "they differ"); });
    });
    EXPECT_EQ(plain.code(), Errc::mismatch);
    EXPECT_STREQ(plain.what(), "they differ");
    const Error fault = test::error_of([&] {
      bootstrap.decide("b", "", [](const auto&) -> std::string {
        Fault known;
        known.rank = 2;
        known.host = "h";
        known.cause = "c";
        known.phase = "init";
        throw Error(Errc::peer_lost, known);
      });
    });
    EXPECT_EQ(fault.fault().rank, 2);
    EXPECT_STREQ(fault.what(), "peer lost: rank 2 on h: c, during init");
  });
}

TEST(BootstrapTest, WhoeverDoesNotComeIsNamedOnEveryRank) {
  for (const std::vector<int>& missing : {std::vector{2}, {1, 3}, {0}, {0, 3}}) {
    const auto store = make_hash_store();
    const auto errors = test::run_threads(5, [&](int rank) {
      if (std::find(missing.begin(), missing.end(), rank) != missing.end()) return;
      const Bootstrap bootstrap(*store, rank, 5, in(100ms));
      const Error error = test::error_of([&] { (void)bootstrap.exchange("all", "x"); });
      EXPECT_EQ(error.code(), Errc::timeout);
      if (missing.size() == 1) {
        EXPECT_EQ(error.fault().rank, missing.front());
      } else {
        const std::string names = std::to_string(missing[0]) + ", " + std::to_string(missing[1]);
        EXPECT_THAT(error.what(), HasSubstr("ranks " + names + " did not come"));
      }
    });
    for (const auto& error : errors) EXPECT_EQ(error, nullptr);
  }
}

TEST(BootstrapTest, ASharedAnswerThatNeverComesNamesRankZero) {
  const auto store = make_hash_store();
  const Bootstrap bootstrap(*store, 1, 3, in(20ms));
  const Error error = test::error_of([&] { bootstrap.share("a", nullptr); });
  EXPECT_EQ(error.code(), Errc::timeout);
  EXPECT_EQ(error.fault().rank, 0);
}

TEST(BootstrapTest, MalformedAnswersAreProtocolErrors) {
  const auto store = make_hash_store();
  const Bootstrap bootstrap(*store, 1, 3, soon());
  for (const std::string answer : {"", "\x02", "\x01", "\x01\x7f"}) {
    store->set("0/a", bytes_of(answer), soon());
    expect_error(Errc::protocol, [&] { bootstrap.share("a", nullptr); });
  }
  store->set("0/b", bytes_of(std::string("\0\xff\xff\xff\xff", 5)), soon());
  expect_error(Errc::protocol, [&] { (void)bootstrap.exchange("b", "x"); });
}

}  // namespace
}  // namespace hvd
