// Tests collectives on plain memory through a whole context.
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>
#include <sys/eventfd.h>

#include <hvd/core/internal/fd.hpp>
#include <hvd/hvd.hpp>

#include "support/context_checks.hpp"

namespace hvd::test {
namespace {

class HostCollectives : public testing::TestWithParam<int> {
 protected:
  static void on_contexts(const std::function<void(Context&)>& body) {
    const auto store = make_hash_store();
    expect_threads(GetParam(), [&](int rank) {
      const auto context = make_context(thread_config(rank, GetParam()), store);
      body(*context);
      context->shutdown();
    });
  }
};

TEST_P(HostCollectives, AllreduceInPlaceAndOutOfPlace) { on_contexts(check_allreduce); }
TEST_P(HostCollectives, BroadcastFromTheLastRank) { on_contexts(check_broadcast); }
TEST_P(HostCollectives, AllgatherOfDifferentCounts) { on_contexts(check_allgather); }

INSTANTIATE_TEST_SUITE_P(Ranks, HostCollectives, testing::ValuesIn(rank_counts({1, 2, 3, 4})),
                         testing::PrintToStringParamName());

TEST(HostCollectives, RanksWithDifferentEngineSettingsAreRefusedAtOnce) {
  for (const auto& [backend, transport, fanout] :
       {std::tuple("native", "auto", 0), std::tuple("auto", "tcp", 0),
        std::tuple("auto", "auto", 2)}) {
    const auto store = make_hash_store();
    const UniqueFd refused(::eventfd(0, EFD_CLOEXEC));
    expect_threads(2, [&, backend = backend, transport = transport, fanout = fanout](int rank) {
      Config config = thread_config(rank, 2);
      if (rank == 0) {
        config.interrupt_fd = refused.get();  // stands for the notice that rank 1 has ended
      } else {
        config.backend = backend;
        config.transport = transport;
        config.control_fanout = fanout;
      }
      const Error error = error_of([&] { static_cast<void>(make_context(config, store)); });
      EXPECT_EQ(error.code(), rank == 0 ? Errc::aborted : Errc::mismatch) << error.what();
      if (rank == 1) {
        EXPECT_THAT(error.what(), testing::HasSubstr(fmt::format("HVD_BACKEND={}, ", backend)));
        EXPECT_THAT(error.what(),
                    testing::HasSubstr(fmt::format("HVD_CONTROL_FANOUT={}: ", fanout)));
      }
      EXPECT_EQ(::eventfd_write(refused.get(), 1), 0);
    });
  }
}

/// Parameters: number of ranks and HVD_TRANSPORT.
class EveryTransport : public testing::TestWithParam<std::tuple<int, std::string>> {
 protected:
  static void on_contexts(const std::function<void(Context&)>& body) {
    const auto& [ranks, transport] = GetParam();
    const auto store = make_hash_store();
    expect_threads(ranks, [&, size = ranks, transport = transport](int rank) {
      Config config = thread_config(rank, size);
      config.transport = transport;
      const auto context = make_context(config, store);
      body(*context);
      context->shutdown();
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, EveryTransport,
                         testing::Combine(testing::Values(1, 2, 3), testing::Values("shm", "tcp")),
                         [](const auto& one) {
                           return fmt::format("{}_{}", std::get<1>(one.param),
                                              std::get<0>(one.param));
                         });

TEST_P(EveryTransport, ArraysOfEveryType) { on_contexts(check_arrays); }
TEST_P(EveryTransport, ArraysInSetsOfRanks) { on_contexts(check_process_sets); }
TEST_P(EveryTransport, GroupsOfEveryOperation) { on_contexts(check_groups); }
TEST_P(EveryTransport, ReductionsOfTheProgramsOwn) { on_contexts(check_own_reductions); }
TEST_P(EveryTransport, Messages) { on_contexts(check_messages); }

TEST_P(EveryTransport, ArraysThatDoNotFitAreRefused) {
  on_contexts([](Context& context) {
    std::vector<float> three(3);
    std::vector<float> two(2);
    EXPECT_EQ(error_of([&] {
                allreduce(std::span(three), std::span(two), {.context = &context});
              }).code(),
              Errc::invalid_argument);
    const std::vector<std::int64_t> splits(static_cast<std::size_t>(context.size()), 7);
    EXPECT_EQ(
        error_of([&] {
          static_cast<void>(alltoall(std::span(three), std::span(splits), {.context = &context}));
        }).code(),
        Errc::invalid_argument);
    barrier({.context = &context});
  });
}

}  // namespace
}  // namespace hvd::test
