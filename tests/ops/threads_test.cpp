// Tests jobs whose ranks are threads of one process.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>
#include <pthread.h>
#include <sys/resource.h>

#include <hvd/hvd.hpp>
#include <hvd/ops/internal/context_follower.hpp>

#include "support/context_checks.hpp"

namespace hvd {
namespace {

using test::error_of;
using testing::HasSubstr;

/// The rank and the size are not used.
const Config kConfig = test::thread_config(7, 9);

/// Checks an allreduce in the default context.
void expect_sum_of_ranks() {
  std::vector<int> sum(3, rank());
  allreduce(std::span(sum), {.op = ReduceOp::sum});
  EXPECT_EQ(sum, std::vector<int>(3, size() * (size() - 1) / 2));
}

class ThreadsOver : public testing::TestWithParam<std::tuple<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(Transports, ThreadsOver,
                         testing::Combine(testing::Values("shm", "tcp"),
                                          testing::ValuesIn(test::rank_counts({1, 2, 4}))));

TEST_P(ThreadsOver, EachRankHasTheDefaultContextOfItsThread) {
  const auto [transport, ranks] = GetParam();
  Config config = kConfig;
  config.transport = transport;
  std::atomic<unsigned> seen{0};
  const auto body = [&, expected = ranks](Context& own) {
    EXPECT_EQ(&context(), &own);
    EXPECT_EQ(size(), expected);
    EXPECT_EQ(local_rank(), rank());
    seen |= 1U << rank();
    expect_sum_of_ranks();
    test::check_allreduce(own);
    test::check_broadcast(own);
    test::check_allgather(own);
    test::check_process_sets(own);
    test::check_messages(own);
  };
  threads(ranks, body, config);
  EXPECT_EQ(seen.load(), (1U << ranks) - 1);
  EXPECT_FALSE(is_initialized());
}

/// Is what a program throws, which knows nothing of `hvd`.
struct DiskFull : std::runtime_error {
  DiskFull() : std::runtime_error("the disk is full") {}
};

class ThreadsWhoseCulpritIs : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Rank, ThreadsWhoseCulpritIs, testing::Values(0, 1, 2));

TEST_P(ThreadsWhoseCulpritIs, ThrowsItsExceptionAndNotThoseOfTheVictims) {
  const int culprit = GetParam();
  const auto body = [&](Context& own) {
    barrier();
    if (own.rank() == culprit) throw DiskFull();
    const Error error = error_of([] { expect_sum_of_ranks(); });
    EXPECT_EQ(error.code(), Errc::aborted);
    EXPECT_EQ(error.fault().rank, culprit);
    EXPECT_THAT(error.what(), HasSubstr("the disk is full"));
    throw error;
  };
  EXPECT_THROW(threads(3, body, kConfig), DiskFull);
  const auto body_that_the_others_leave = [&](Context& own) {
    if (own.rank() == culprit) throw DiskFull();
  };
  EXPECT_THROW(threads(3, body_that_the_others_leave, kConfig), DiskFull);
  threads(
      3, [](Context&) { expect_sum_of_ranks(); }, kConfig);
}

TEST(Threads, WhatIsThrownNeedNotBeAnException) {
  const auto body = [](Context& own) {
    if (own.rank() == 1) throw 7;  // NOLINT: that is the test
    EXPECT_EQ(error_of([] { expect_sum_of_ranks(); }).code(), Errc::aborted);
  };
  EXPECT_THROW(threads(2, body, kConfig), int);
}

TEST(Threads, AnErrorOfTheStartIsThrown) {
  Config config = kConfig;
  config.transport = "carrier pigeon";
  const Error error = error_of([&] {
    threads(
        2, [](Context&) { FAIL(); }, config);
  });
  EXPECT_EQ(error.code(), Errc::invalid_argument);
  EXPECT_THAT(error.what(), HasSubstr("carrier pigeon"));
}

TEST(Threads, TheRankOfTheProcessItselfDoesNotMatter) {
  Config config = kConfig;
  config.ranks = {7};
  config.local_rank = config.local_size = config.cross_rank = config.cross_size = 3;
  config.secret_file = "/absent";
  config.error_file = "/absent/error";
  const auto body = [](Context& own) {
    EXPECT_EQ(local_size(), 2);
    EXPECT_THAT(own.config().error_file, testing::IsEmpty());
    expect_sum_of_ranks();
  };
  threads(2, body, config);
}

TEST(Threads, JobsRunOneAfterAnotherAtTheSameTimeAndInsideEachOther) {
  const auto sum = [](Context&) { expect_sum_of_ranks(); };
  threads(2, sum, kConfig);
  threads(3, sum, kConfig);
  test::expect_threads(2, [&](int job) { threads(2 + job, sum, kConfig); });
  const auto nest = [&](Context& own) {
    threads(own.rank() + 1, sum, kConfig);
    EXPECT_EQ(&context(), &own);
    expect_sum_of_ranks();
  };
  threads(2, nest, kConfig);
}

TEST(Threads, OtherThreadsKeepTheContextOfTheProcess) {
  const auto elsewhere = [](const std::function<void()>& call) { std::thread(call).join(); };
  const auto body = [&](Context& own) {
    elsewhere([] {
      EXPECT_EQ(error_of([] { static_cast<void>(context()); }).code(), Errc::not_initialized);
    });
    elsewhere([&] { barrier({.context = &own}); });
  };
  threads(2, body, kConfig);

  init(test::thread_config(0, 1));
  const auto body_beside = [&](Context& own) {
    EXPECT_EQ(&context(), &own);
    elsewhere([&] { EXPECT_NE(&context(), &own); });
    expect_sum_of_ranks();
  };
  threads(2, body_beside, kConfig);
  EXPECT_EQ(size(), 1);
  expect_sum_of_ranks();
  shutdown();
}

TEST(Threads, ABodyMayCallInitAndShutdownAsAProgramDoes) {
  const auto body = [](Context& own) {
    init();
    EXPECT_EQ(&context(), &own);
    expect_sum_of_ranks();
    shutdown();
    EXPECT_EQ(error_of([] { expect_sum_of_ranks(); }).code(), Errc::shut_down);
  };
  threads(2, body, kConfig);
  EXPECT_FALSE(is_initialized());
}

TEST(Threads, AreNoRanksOfTheLauncher) {
  const std::vector<std::pair<const char*, const char*>> variables = {
      {"HVD_RANK", "5"},
      {"HVD_SIZE", "7"},
      {"HVD_STORE", "unix:@nobody"},
      {"RANK", "5"},
      {"WORLD_SIZE", "7"},
      {"PMIX_RANK", "5"},
      {"OMPI_COMM_WORLD_RANK", "x"},
      {"HVD_STATUS_FD", "0"},
      {"HVD_BACKEND", "mpi"},
      {"HVD_FUSION_THRESHOLD", "4K"},
      {"HVD_PEER_TIMEOUT_MS", "20000"}};
  for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  const auto body = [](Context& own) {
    EXPECT_EQ(size(), 2);
    EXPECT_EQ(own.config().backend, "auto");
    EXPECT_EQ(own.config().fusion_threshold, 4096U);
    expect_sum_of_ranks();
  };
  threads(2, body);
  for (const auto& [name, value] : variables) ::unsetenv(name);
}

TEST(Threads, RefusesWhatItCannotRun) {
  for (const int size : {0, -1}) {
    const Error error = error_of([&] {
      threads(
          size, [](Context&) { FAIL(); }, kConfig);
    });
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(size) + " ranks"));
  }
  EXPECT_EQ(error_of([] { threads(2, nullptr, kConfig); }).code(), Errc::invalid_argument);
}

TEST(Threads, SaysWhenAThreadCannotBeStarted) {
  pthread_attr_t before;
  ASSERT_EQ(::pthread_getattr_default_np(&before), 0);
  pthread_attr_t huge;
  ASSERT_EQ(::pthread_attr_init(&huge), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&huge, std::size_t{1} << 46), 0);
  ASSERT_EQ(::pthread_setattr_default_np(&huge), 0);
  const Error error = error_of([] {
    threads(
        2, [](Context&) { FAIL(); }, kConfig);
  });
  EXPECT_EQ(::pthread_setattr_default_np(&before), 0);
  ::pthread_attr_destroy(&huge);
  ::pthread_attr_destroy(&before);
  EXPECT_EQ(error.code(), Errc::resource);
  EXPECT_THAT(error.what(), HasSubstr("rank 0 of 2"));
}

/// Limits the descriptors of this process during its life.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t beside_open) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit few = before_;
    const std::filesystem::directory_iterator open("/proc/self/fd");
    few.rlim_cur = static_cast<rlim_t>(std::distance(begin(open), end(open)) - 1) + beside_open;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~DescriptorLimit() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(Threads, TooFewDescriptorsAreAnErrorAtOnce) {
  if (test::kSanitized) GTEST_SKIP() << "needs a process without a sanitizer";
  Config config = kConfig;
  config.start_timeout = std::chrono::minutes(10);  // nobody waits for it
  const auto run = [&] {
    threads(
        8, [](Context&) { expect_sum_of_ranks(); }, config);
  };
  {
    const DescriptorLimit few(100);
    const Error error = error_of(run);
    EXPECT_EQ(error.code(), Errc::resource);
    EXPECT_THAT(error.what(), HasSubstr("8 ranks need 144 descriptors"));
  }
  // Above that number the ranks begin, and need a few more while they start.
  int failed = 0;
  for (rlim_t beside = 146; beside < 250; beside += 4) {
    const DescriptorLimit few(beside);
    try {
      run();
      break;
    } catch (const Error& error) {
      ++failed;
      EXPECT_EQ(error.code(), Errc::resource) << beside << ": " << error.what();
    }
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 26);
}

/// Counts how often it is attached.
struct Follower final : detail::ContextFollower {
  int attached = 0;
  void detach() noexcept override {}
  void attach(Context&) override { ++attached; }
};

TEST(Threads, WhatABodyMakesDoesNotFollowTheContextsOfAnElasticJob) {
  Follower outside;
  const auto body = [&](Context& own) {
    Follower inside;
    barrier();
    if (own.rank() == 0) detail::attach_followers(own);
    barrier();
    EXPECT_EQ(inside.attached, 0);
  };
  threads(2, body, kConfig);
  EXPECT_EQ(outside.attached, 1);
}

}  // namespace
}  // namespace hvd
