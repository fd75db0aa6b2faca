// Tests whole contexts with a control tree, with ranks as threads.
#include <functional>
#include <latch>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>

#include <hvd/hvd.hpp>

namespace hvd {
namespace {

using test::error_of;
using testing::Each;

std::vector<std::exception_ptr> run(int size, int fanout,
                                    const std::function<void(Context&)>& body) {
  const std::shared_ptr<Store> store = make_hash_store();
  return test::run_threads(size, [&](int rank) {
    Config config = test::thread_config(rank, size);
    config.control_fanout = fanout;
    const auto context = make_context(config, store);
    body(*context);
    context->shutdown();
  });
}

/// Submits a few sums at once, in an order of this rank's own, and checks them.
void step(Context& context, int number) {
  constexpr int kTensors = 6;
  std::vector<std::vector<float>> data(kTensors);
  std::vector<Work> works;
  for (int i = 0; i < kTensors; ++i) {
    const auto tensor = static_cast<std::size_t>((i + number * context.rank()) % kTensors);
    data[tensor].assign(100 + tensor, static_cast<float>(context.rank() + number));
    works.push_back(allreduce_async(
        data[tensor].data(), data[tensor].data(), std::ssize(data[tensor]), DType::f32,
        {.name = std::to_string(tensor), .op = ReduceOp::sum, .context = &context}));
  }
  for (const Work& work : works) work.wait();
  const int size = context.size();
  for (const auto& values : data) {
    ASSERT_THAT(values, Each(static_cast<float>(size * (size - 1) / 2 + size * number)));
  }
}

/// Parameters: ranks and fanout. The last one has three levels below rank 0.
class TreeContext : public testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, TreeContext,
                         testing::Values(std::pair(5, 2), std::pair(6, 2), std::pair(8, 3),
                                         std::pair(8, 2)),
                         [](const auto& one) {
                           return "np" + std::to_string(one.param.first) + "fanout" +
                                  std::to_string(one.param.second);
                         });

TEST_P(TreeContext, FreezesThawsAndLeavesInPeace) {
  const auto errors = run(GetParam().first, GetParam().second, [](Context& context) {
    for (int i = 0; i < 12; ++i) step(context, i);
    EXPECT_GT(context.stats().schedule_hits, 0U);
    barrier({.context = &context});  // not in the plan
    for (int i = 0; i < 3; ++i) step(context, i);
  });
  EXPECT_THAT(errors, Each(nullptr));
}

TEST_P(TreeContext, ARankThatVanishesIsNamedByEverySurvivor) {
  const auto [size, fanout] = GetParam();
  // The victims are rank 0, a relay, and ranks below it; with three levels rank 2 is a relay too.
  for (const int victim : {0, 1, 2, 3}) {
    const auto errors = run(size, fanout, [&](Context& context) {
      step(context, 0);
      if (context.rank() == victim) return context.disconnect();
      const Error error = error_of([&] {
        for (int i = 1;; ++i) step(context, i);
      });
      EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
      EXPECT_EQ(error.fault().rank, victim) << error.what();
    });
    for (int rank = 0; rank < size; ++rank) {
      // In the survivors, shutdown throws the same error again.
      EXPECT_EQ(errors[static_cast<std::size_t>(rank)] != nullptr, rank != victim) << rank;
    }
  }
}

TEST_P(TreeContext, AnAbortBelowARelayEndsTheJobEverywhere) {
  const auto [size, fanout] = GetParam();
  const int member = 2;
  const auto errors = run(size, fanout, [&](Context& context) {
    step(context, 0);
    if (context.rank() == member) context.abort("enough");
    const Error error = error_of([&] {
      for (int i = 1;; ++i) step(context, i);
    });
    EXPECT_EQ(error.code(), Errc::aborted) << error.what();
    EXPECT_EQ(error.fault().rank, member) << error.what();
  });
  EXPECT_THAT(errors, Each(testing::Ne(nullptr)));
}

}  // namespace
}  // namespace hvd
