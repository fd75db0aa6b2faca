// Tests process sets, groups and joins in whole contexts with ranks as threads.
#include <cstring>
#include <functional>
#include <latch>
#include <numeric>
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
using testing::ElementsAre;
using testing::HasSubstr;

void expect_run(int size, const std::function<void(Context&)>& body) {
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(size, [&](int rank) {
    const auto context = make_context(test::thread_config(rank, size), store);
    body(*context);
  });
}

template <class T>
std::vector<T> elements(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

AllreduceOptions in_set(Context& context, const ProcessSet& set, std::string name,
                        ReduceOp op = ReduceOp::sum) {
  return {.name = std::move(name), .op = op, .process_set = set.id, .context = &context};
}

bool contains(const ProcessSet& set, int rank) {
  return std::find(set.ranks.begin(), set.ranks.end(), rank) != set.ranks.end();
}

int sum_of(const ProcessSet& set) { return std::accumulate(set.ranks.begin(), set.ranks.end(), 0); }

class SetsAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SetsAt, testing::ValuesIn(test::rank_counts({3, 4, 5, 8})));

// If each of {0,1}, {1,2} and {2,0} had an order of its own, blocking executors would deadlock.
TEST_P(SetsAt, OverlappingSetsRunFrozenAndUnfrozen) {
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    const std::vector<ProcessSet> sets{context.add_process_set({0, 1}),
                                       context.add_process_set({1, 2}),
                                       context.add_process_set({0, 2})};
    for (int step = 0; step < 60; ++step) {
      std::vector<std::vector<float>> data(sets.size() + 1);
      std::vector<Work> works;
      for (std::size_t i = 0; i <= sets.size(); ++i) {
        const std::size_t set = (i + static_cast<std::size_t>(context.rank())) % (sets.size() + 1);
        data[set].assign(5, static_cast<float>(context.rank() + step));
        const ProcessSet& chosen = set < sets.size() ? sets[set] : ProcessSet{};
        if (set < sets.size() && !contains(chosen, context.rank())) continue;
        works.push_back(allreduce_async(data[set].data(), data[set].data(), 5, DType::f32,
                                        in_set(context, chosen, "x")));
      }
      for (const Work& work : works) work.wait();
      for (std::size_t set = 0; set < sets.size(); ++set) {
        if (!contains(sets[set], context.rank())) continue;
        EXPECT_THAT(data[set], Each(static_cast<float>(sum_of(sets[set]) + 2 * step)));
      }
      EXPECT_THAT(data.back(), Each(static_cast<float>(size * (size - 1) / 2 + size * step)));
    }
    EXPECT_GE(context.stats().freezes, 1U);
    EXPECT_GT(context.stats().schedule_hits, 0U);
  });
}

TEST_P(SetsAt, AveragesDivideByTheSetAndRootsAreGlobalRanks) {
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    const ProcessSet set = context.add_process_set({1, size - 1});
    EXPECT_THAT(context.ranks_of(set.id), ElementsAre(1, size - 1));
    if (contains(set, context.rank())) {
      std::vector<double> data(3, context.rank());
      allreduce(std::span(data), in_set(context, set, "mean", ReduceOp::average));
      EXPECT_THAT(data, Each(size / 2.0));
      std::vector<std::int64_t> root(2, context.rank());
      broadcast(root.data(), 2, DType::i64, size - 1,
                {.name = "b", .process_set = set.id, .context = &context});
      EXPECT_THAT(root, Each(size - 1));
      Bytes gathered;
      const std::int32_t mine = context.rank();
      allgather_async(&mine, 1, DType::i32, gathered,
                      {.name = "g", .process_set = set.id, .context = &context})
          .wait();
      EXPECT_THAT(elements<std::int32_t>(gathered), ElementsAre(1, size - 1));
      const std::vector<std::int32_t> rows{1, 2, 3};
      Bytes part;
      reducescatter_async(
          rows.data(), 3, DType::i32, part,
          {.name = "r", .op = ReduceOp::sum, .process_set = set.id, .context = &context})
          .wait();
      EXPECT_EQ(elements<std::int32_t>(part), context.rank() == 1
                                                  ? (std::vector<std::int32_t>{2, 4})
                                                  : std::vector<std::int32_t>{6});
      EXPECT_EQ(error_of([&] {
                  broadcast(root.data(), 2, DType::i64, 0,
                            {.name = "b", .process_set = set.id, .context = &context});
                }).code(),
                Errc::invalid_argument);
      barrier({.process_set = set.id, .context = &context});
    } else {
      std::vector<double> data(3, 1);
      const Error error = error_of([&] { allreduce(std::span(data), in_set(context, set, "x")); });
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("not in process set"));
    }
  });
}

TEST_P(SetsAt, ARemovedSetIsGoneAndItsPendingOperationsFail) {
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    const ProcessSet set = context.add_process_set({0, 1});
    std::vector<float> data(1, 1.0F);
    Work pending;
    if (context.rank() == 0) {
      pending =
          allreduce_async(data.data(), data.data(), 1, DType::f32, in_set(context, set, "never"));
    }
    context.remove_process_set(set);
    if (context.rank() == 0) {
      EXPECT_EQ(error_of([&] { pending.wait(); }).code(), Errc::invalid_argument);
    }
    EXPECT_EQ(error_of([&] { (void)context.ranks_of(set.id); }).code(), Errc::invalid_argument);
    EXPECT_EQ(error_of([&] { allreduce(std::span(data), in_set(context, set, "x")); }).code(),
              Errc::invalid_argument);
    for (const std::int32_t stays : {0, -1, -2}) {
      EXPECT_EQ(error_of([&] {
                  context.remove_process_set({stays, {}});
                }).code(),
                Errc::invalid_argument);
    }
    const ProcessSet again = context.add_process_set({0, 1});
    EXPECT_NE(again.id, set.id);
    if (context.rank() < 2) allreduce(std::span(data), in_set(context, again, "x"));
  });
}

TEST_P(SetsAt, RanksThatDisagreeOnASetGetAMismatch) {
  expect_run(GetParam(), [&](Context& context) {
    const std::vector<int> ranks = context.rank() == 0 ? std::vector{0, 1} : std::vector{0, 2};
    EXPECT_EQ(error_of([&] { (void)context.add_process_set(ranks); }).code(), Errc::mismatch);
    EXPECT_EQ(error_of([&] {
                (void)context.add_process_set({1, 0});
              }).code(),
              Errc::invalid_argument);
    EXPECT_EQ(error_of([&] { (void)context.add_process_set({}); }).code(), Errc::invalid_argument);
  });
}

class EveryAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, EveryAt, testing::ValuesIn(test::rank_counts({1, 2, 3, 4, 5, 8})));

TEST_P(EveryAt, ReducescatterGivesTheFirstRanksOneMore) {
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    for (const int count : {0, 1, size - 1, size, 3 * size + 2}) {
      std::vector<std::int32_t> data(static_cast<std::size_t>(count));
      for (int i = 0; i < count; ++i) data[static_cast<std::size_t>(i)] = i + context.rank();
      Bytes output;
      reducescatter_async(
          data.data(), count, DType::i32, output,
          {.name = "r" + std::to_string(count), .op = ReduceOp::sum, .context = &context})
          .wait();
      const int rank = context.rank();
      const int begin = rank * (count / size) + std::min(rank, count % size);
      std::vector<std::int32_t> expected;
      for (int i = 0; i < count / size + (rank < count % size ? 1 : 0); ++i) {
        expected.push_back(size * (begin + i) + size * (size - 1) / 2);
      }
      EXPECT_EQ(elements<std::int32_t>(output), expected) << count << " over " << size;
    }
  });
}

TEST_P(EveryAt, AlltoallSendsUnevenSplits) {
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    for (int round = 0; round < 3; ++round) {
      // Rank a sends (a + b + round) % 3 values of 100 a + b to b.
      std::vector<std::int64_t> splits;
      std::vector<std::int32_t> data;
      std::vector<std::int32_t> expected;
      std::vector<std::int64_t> expected_rows;
      for (int peer = 0; peer < size; ++peer) {
        const int rows = (context.rank() + peer + round) % 3;
        splits.push_back(rows);
        data.insert(data.end(), static_cast<std::size_t>(rows), 100 * context.rank() + peer);
        expected.insert(expected.end(), static_cast<std::size_t>(rows),
                        100 * peer + context.rank());
        expected_rows.push_back(rows);
      }
      Bytes output;
      std::vector<std::int64_t> received;
      alltoall_async(data.data(), splits, DType::i32, output, received,
                     {.name = "a", .context = &context})
          .wait();
      EXPECT_EQ(elements<std::int32_t>(output), expected);
      EXPECT_EQ(received, expected_rows);
    }
  });
}

TEST_P(EveryAt, AGroupRunsWhenAllOfItIsThere) {
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    for (int step = 0; step < 10; ++step) {
      std::vector<float> a(3, 1.0F);
      std::vector<double> b(4, 2.0);
      std::vector<AllreduceItem> items{{a.data(), a.data(), 3, DType::f32, "a"},
                                       {b.data(), b.data(), 4, DType::f64, "b"}};
      if (context.rank() % 2 == 1) std::swap(items[0], items[1]);
      for (const Work& work : grouped_allreduce_async(
               items, {.name = "group", .op = ReduceOp::sum, .context = &context}))
        work.wait();
      EXPECT_THAT(a, Each(static_cast<float>(size)));
      EXPECT_THAT(b, Each(2.0 * size));
    }
  });
}

TEST_P(EveryAt, AGroupWithAFailedMemberLeavesNothingBehind) {
  const int size = GetParam();
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  expect_run(size, [&](Context& context) {
    std::vector<float> a(context.rank() == 0 ? 3 : 4, 1.0F);
    std::vector<float> b(2, 1.0F);
    const std::vector<AllreduceItem> items{{a.data(), a.data(), std::ssize(a), DType::f32, "a"},
                                           {b.data(), b.data(), std::ssize(b), DType::f32, "b"}};
    for (const Work& work :
         grouped_allreduce_async(items, {.name = "group", .context = &context})) {
      EXPECT_EQ(error_of([&] { work.wait(); }).code(), Errc::mismatch);
    }
    EXPECT_THAT(b, Each(1.0F)) << "untouched";
    a.assign(4, 1.0F);
    const std::vector<AllreduceItem> again{{a.data(), a.data(), std::ssize(a), DType::f32, "a"},
                                           {b.data(), b.data(), std::ssize(b), DType::f32, "b"}};
    for (const Work& work : grouped_allreduce_async(again, {.name = "group", .context = &context}))
      work.wait();
  });
}

/// Submits a group of `items` unnamed sums of ones from `ranks` ranks. All must end before the
/// test's timeout. Returns the errors.
std::vector<Error> group_of(Context& context, std::size_t items, int ranks,
                            const std::string& name = "group") {
  std::vector<float> data(items, 1.0F);
  std::vector<AllreduceItem> group;
  for (float& value : data) group.push_back({&value, &value, 1, DType::f32});
  std::vector<Error> errors;
  for (const Work& work :
       grouped_allreduce_async(group, {.name = name, .op = ReduceOp::sum, .context = &context})) {
    try {
      if (!work.wait_until(Clock::now() + std::chrono::seconds(20))) {
        throw std::runtime_error("a member of the group waits");
      }
    } catch (const Error& error) {
      errors.push_back(error);
    }
  }
  if (errors.empty()) {
    EXPECT_THAT(data, Each(static_cast<float>(ranks)));
  }
  return errors;
}

// This also holds for a frozen schedule, and if a rank submits more or fewer than the others.
TEST_P(EveryAt, GroupsOfDifferentSizeAreAMismatchOnEveryRank) {
  const int size = GetParam();
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  expect_run(size, [&](Context& context) {
    const bool odd = context.rank() == context.size() - 1;
    for (const std::size_t of_odd : {1U, 2U, 4U}) {
      for (int step = 0; step < 12; ++step) EXPECT_TRUE(group_of(context, 3, size).empty());
      const std::size_t mine = odd ? of_odd : 3;
      const std::vector<Error> errors = group_of(context, mine, size);
      EXPECT_EQ(errors.size(), mine) << "every member";
      for (const Error& error : errors) {
        EXPECT_EQ(error.code(), Errc::mismatch);
        EXPECT_THAT(error.what(), HasSubstr("group"));
        EXPECT_THAT(error.what(), HasSubstr("on rank " + std::to_string(size - 1)));
      }
      EXPECT_TRUE(group_of(context, 3, size).empty()) << "works again";
    }
    EXPECT_GE(context.stats().freezes, 1U);
  });
}

TEST_P(EveryAt, ARefusedUnnamedGroupTakesNoNumber) {
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    if (context.rank() == 0) {
      std::vector<float> a(2, 1.0F);
      const std::vector<AllreduceItem> twice{{&a[0], &a[0], 1, DType::f32, "a"},
                                             {&a[1], &a[1], 1, DType::f32, "a"}};
      const Error error = error_of(
          [&] { static_cast<void>(grouped_allreduce_async(twice, {.context = &context})); });
      EXPECT_EQ(error.code(), Errc::duplicate_name);
    }
    EXPECT_TRUE(group_of(context, 2, size, "").empty());
  });
}

TEST_P(EveryAt, AGroupIsPendingOnceAtATime) {
  const int size = GetParam();
  if (size == 1) GTEST_SKIP() << "needs a rank that waits for another";
  std::latch refused(size);
  expect_run(size, [&](Context& context) {
    std::vector<float> a(1, 1.0F);
    std::vector<float> b(1, 1.0F);
    const std::vector<AllreduceItem> first{{a.data(), a.data(), 1, DType::f32, "a"}};
    const std::vector<AllreduceItem> second{{b.data(), b.data(), 1, DType::f32, "b"}};
    std::vector<Work> works;
    if (context.rank() != 0) {
      works =
          grouped_allreduce_async(first, {.name = "g", .op = ReduceOp::sum, .context = &context});
      const Error error = error_of([&] {
        static_cast<void>(grouped_allreduce_async(second, {.name = "g", .context = &context}));
      });
      EXPECT_EQ(error.code(), Errc::duplicate_name);
      EXPECT_THAT(error.what(), HasSubstr("'g'"));
    }
    refused.arrive_and_wait();
    if (context.rank() == 0)
      works =
          grouped_allreduce_async(first, {.name = "g", .op = ReduceOp::sum, .context = &context});
    for (const Work& work : works) work.wait();
    for (const Work& work :
         grouped_allreduce_async(second, {.name = "g", .op = ReduceOp::sum, .context = &context})) {
      work.wait();
    }
    EXPECT_THAT(a, Each(static_cast<float>(size)));
    EXPECT_THAT(b, Each(static_cast<float>(size)));
  });
}

TEST_P(EveryAt, AJoinedRankContributesTheIdentityOfEveryOperation) {
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    const int rank = context.rank();
    // Rank r has r + 1 batches, several times over: joins nest with frozen schedules.
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int batch = 0; batch <= 5 * rank; ++batch) {
        const int first = (batch + 4) / 5;  // ranks below have joined
        std::vector<double> sum(2, rank + 1);
        std::vector<std::int32_t> least(3, 10 + rank);
        std::vector<float> most(1, static_cast<float>(-10 - rank));
        std::vector<double> product(2, 2.0);
        const auto start = [&](auto& data, const char* name, ReduceOp op, double prescale = 1) {
          using T = std::decay_t<decltype(data[0])>;
          return allreduce_async(
              data.data(), data.data(), std::ssize(data), kDTypeOf<T>,
              {.name = name, .op = op, .prescale = prescale, .context = &context});
        };
        const Work works[] = {start(sum, "sum", ReduceOp::sum), start(least, "min", ReduceOp::min),
                              start(most, "max", ReduceOp::max),
                              start(product, "product", ReduceOp::product, 0.5)};
        for (const Work& work : works) work.wait();
        int expected = 0;
        for (int other = first; other < size; ++other) expected += other + 1;
        EXPECT_THAT(sum, Each(expected));
        EXPECT_THAT(least, Each(10 + first));
        EXPECT_THAT(most, Each(static_cast<float>(-10 - first)));
        EXPECT_THAT(product, Each(1.0));
      }
      EXPECT_EQ(context.join(), size - 1);
    }
  });
}

TEST_P(EveryAt, UnnamedOperationsMatchAgainAfterAJoin) {
  const int size = GetParam();
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(size, [&](int rank) {
    Config config = test::thread_config(rank, size);
    config.stall_abort = std::chrono::seconds(20);  // so that the test fails instead of hanging
    const auto context = make_context(config, store);
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int batch = 0; batch <= rank; ++batch) {
        std::vector<double> data(2, 1.0);
        allreduce(std::span(data), {.op = ReduceOp::sum, .context = context.get()});
        EXPECT_THAT(data, Each(size - batch)) << "ranks below " << batch << " have joined";
        barrier({.context = context.get()});
        EXPECT_TRUE(group_of(*context, 2, size - batch, "").empty());
      }
      EXPECT_EQ(context->join(), size - 1);
      for (int call = 0; call < 2; ++call) {
        std::vector<double> data(2, call);
        allreduce(std::span(data), {.op = ReduceOp::sum, .context = context.get()});
        EXPECT_THAT(data, Each(size * call));
        barrier({.context = context.get()});
        EXPECT_TRUE(group_of(*context, 2, size, "").empty());
        context->remove_process_set(context->add_process_set({0}));
      }
    }
  });
}

TEST_P(EveryAt, AveragesUnderJoinDivideByWhatIsAskedFor) {
  const int size = GetParam();
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  expect_run(size, [&](Context& context) {
    for (const bool over_contributors : {false, true}) {
      if (context.rank() != 0) {
        // If rank 0 has not joined yet, the barrier below waits for it.
        while (true) {
          std::vector<double> seen(1, 1.0);
          allreduce(std::span(seen), {.name = "probe", .op = ReduceOp::sum, .context = &context});
          if (seen[0] == size - 1) break;
        }
        std::vector<double> data(1, 6.0);
        allreduce(std::span(data), {.name = "mean", .op = ReduceOp::average, .context = &context});
        EXPECT_DOUBLE_EQ(data[0], over_contributors ? 6.0 : 6.0 * (size - 1) / size);
        Bytes output;
        const Error error = error_of([&] {
          allgather_async(data.data(), 1, DType::f64, output, {.name = "g", .context = &context})
              .wait();
        });
        EXPECT_EQ(error.code(), Errc::unsupported);
        EXPECT_THAT(error.what(), HasSubstr("rank 0 has joined"));
      }
      EXPECT_GE(context.join(over_contributors), 1);
    }
  });
}

}  // namespace
}  // namespace hvd
