// Tests messages between two ranks and user-defined reductions, with ranks as threads.
#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>

#include <hvd/core/internal/pair_set.hpp>
#include <hvd/core/process_set.hpp>
#include <hvd/hvd.hpp>

namespace hvd {
namespace {

using test::error_of;
using testing::Each;
using testing::HasSubstr;

void expect_run(int size, const std::function<void(Context&)>& body) {
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(size, [&](int rank) {
    const auto context = make_context(test::thread_config(rank, size), store);
    body(*context);
  });
}

TEST(PairSet, EachDirectionIsASetOfItsOwn) {
  for (int size = 2; size <= 9; ++size) {
    std::vector<std::int32_t> ids;
    for (int from = 0; from < size; ++from) {
      EXPECT_EQ(pair_members(pair_set(from, from, size).id, size), std::nullopt);
      for (int to = 0; to < size; ++to) {
        if (from == to) continue;
        const ProcessSet set = pair_set(from, to, size);
        EXPECT_LT(set.id, 0);
        EXPECT_EQ(pair_members(set.id, size), set.ranks);
        ids.push_back(set.id);
      }
    }
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
    EXPECT_EQ(pair_members(-1 - size * size, size), std::nullopt);
  }
  EXPECT_EQ(pair_members(0, 4), std::nullopt);
  EXPECT_EQ(pair_members(7, 4), std::nullopt);
}

class MessagesAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MessagesAt, testing::ValuesIn(test::rank_counts({2, 3, 5})));

TEST_P(MessagesAt, GoAround) {
  expect_run(GetParam(), [](Context& context) {
    const int size = context.size();
    const int next = (context.rank() + 1) % size;
    const int previous = (context.rank() + size - 1) % size;
    for (const std::int64_t count : {0, 1, 1'000, 300'000}) {
      const std::vector<double> out(static_cast<std::size_t>(count), context.rank());
      std::vector<double> in(static_cast<std::size_t>(count), -1);
      const Work sent = send_async(out.data(), count, DType::f64, next, {.context = &context});
      recv(std::span(in), previous, {.context = &context});
      sent.wait();
      EXPECT_THAT(in, Each(previous));
    }
  });
}

TEST_P(MessagesAt, NamesDecideAndUnnamedOnesKeepTheirOrder) {
  expect_run(GetParam(), [](Context& context) {
    std::vector<int> values{1, 2, 3, 4};
    if (context.rank() == 0) {
      std::vector<Work> works;
      for (int i = 0; i < 2; ++i)
        works.push_back(send_async(&values[i], 1, DType::i32, 1, {.context = &context}));
      works.push_back(send_async(&values[2], 1, DType::i32, 1, {.name = "a", .context = &context}));
      works.push_back(send_async(&values[3], 1, DType::i32, 1, {.name = "b", .context = &context}));
      for (const Work& work : works) work.wait();
    } else if (context.rank() == 1) {
      std::vector<int> got(4, -1);
      std::vector<Work> works;
      works.push_back(recv_async(&got[3], 1, DType::i32, 0, {.name = "b", .context = &context}));
      works.push_back(recv_async(&got[2], 1, DType::i32, 0, {.name = "a", .context = &context}));
      for (int i = 0; i < 2; ++i)
        works.push_back(recv_async(&got[i], 1, DType::i32, 0, {.context = &context}));
      for (const Work& work : works) work.wait();
      EXPECT_EQ(got, values);
    }
  });
}

TEST_P(MessagesAt, BothDirectionsAndACollectiveAtOnce) {
  expect_run(GetParam(), [](Context& context) {
    const int other = context.rank() ^ 1;
    for (int step = 0; step < 50; ++step) {
      std::vector<Work> works;
      const int out = 100 * context.rank() + step;
      int in = -1;
      if (other < context.size()) {
        works.push_back(send_async(&out, 1, DType::i32, other, {.name = "x", .context = &context}));
        works.push_back(recv_async(&in, 1, DType::i32, other, {.name = "x", .context = &context}));
      }
      float one = 1;
      allreduce(std::span(&one, 1), {.name = "one", .op = ReduceOp::sum, .context = &context});
      for (const Work& work : works) work.wait();
      EXPECT_EQ(one, static_cast<float>(context.size()));
      EXPECT_EQ(in, other < context.size() ? 100 * other + step : -1);
    }
    const Stats stats = context.stats();
    EXPECT_GE(stats.freezes, 1U) << "messages are part of a schedule like anything else";
    EXPECT_GT(stats.schedule_hits, 20U);
  });
}

TEST(Messages, AMismatchIsNamedOnBothSides) {
  expect_run(2, [](Context& context) {
    std::vector<float> data(4);
    const Error error = error_of([&] {
      if (context.rank() == 0) send(std::span(data), 1, {.name = "weights", .context = &context});
      if (context.rank() == 1)
        recv(std::span(data).first(3), 0, {.name = "weights", .context = &context});
    });
    EXPECT_EQ(error.code(), Errc::mismatch);
    EXPECT_THAT(error.what(), HasSubstr("weights"));
    float again = static_cast<float>(context.rank());
    if (context.rank() == 0) send(std::span(&again, 1), 1, {.context = &context});
    if (context.rank() == 1) recv(std::span(&again, 1), 0, {.context = &context});
    EXPECT_EQ(again, 0) << "the context goes on";
  });
}

TEST(Messages, ToNobodyAreRefused) {
  expect_run(2, [](Context& context) {
    float value = 0;
    for (const int to : {-1, 2, context.rank()}) {
      const Error error = error_of([&] { send(std::span(&value, 1), to, {.context = &context}); });
      EXPECT_EQ(error.code(), Errc::invalid_argument);
    }
  });
}

TEST(Messages, ToARankThatHasShutDownFail) {
  expect_run(3, [](Context& context) {
    if (context.rank() == 2) return;
    float value = 0;
    const Error error = error_of([&] { recv(std::span(&value, 1), 2, {.context = &context}); });
    EXPECT_EQ(error.code(), Errc::shut_down) << error.what();
    // The other two ranks continue.
    if (context.rank() == 0) send(std::span(&value, 1), 1, {.context = &context});
    if (context.rank() == 1) recv(std::span(&value, 1), 0, {.context = &context});
  });
}

/// The index of the largest value, and the lower index if two are equal.
struct Largest {
  double value;
  std::int32_t place;
  friend bool operator==(const Largest&, const Largest&) = default;
};

/// The function x -> a·x + b, whose composition does not commute.
struct Affine {
  std::int64_t a;
  std::int64_t b;
  friend bool operator==(const Affine&, const Affine&) = default;
};

class UserReductionAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, UserReductionAt,
                         testing::ValuesIn(test::rank_counts({1, 2, 3, 4, 5, 8})));

TEST_P(UserReductionAt, StructuresOfAnyKindInRankOrder) {
  expect_run(GetParam(), [](Context& context) {
    const int size = context.size();
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{size} - 1,
                                     std::int64_t{size} + 1, std::int64_t{10'007}}) {
      std::vector<Largest> largest;
      std::vector<Affine> maps;
      std::vector<Largest> expected_largest;
      std::vector<Affine> expected_maps;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto value = [&](int rank) { return static_cast<double>((i * 7 + rank * 3) % 11); };
        const auto map = [&](int rank) { return Affine{1 + (i + rank) % 3, rank + i % 5}; };
        largest.push_back({value(context.rank()), context.rank()});
        maps.push_back(map(context.rank()));
        Largest best{value(0), 0};
        Affine all = map(0);
        for (int rank = 1; rank < size; ++rank) {
          if (value(rank) > best.value) best = {value(rank), rank};
          all = {all.a * map(rank).a, all.b * map(rank).a + map(rank).b};
        }
        expected_largest.push_back(best);
        expected_maps.push_back(all);
      }
      allreduce_with(std::span(largest),
                     [](Largest& into, const Largest& from) {
                       if (from.value > into.value) into = from;
                     },
                     {.name = "largest", .context = &context});
      allreduce_with(std::span(maps),
                     [](Affine& into, const Affine& from) {
                       into = {into.a * from.a, into.b * from.a + from.b};
                     },
                     {.context = &context});
      EXPECT_TRUE(largest == expected_largest) << count;
      EXPECT_TRUE(maps == expected_maps) << count;
    }
  });
}

TEST(UserReduction, OfAProcessSet) {
  expect_run(3, [](Context& context) {
    const ProcessSet set = context.add_process_set({0, 2});
    if (context.rank() == 1) return;
    std::vector<int> values(5, context.rank() + 1);
    allreduce_with(std::span(values), [](int& into, const int& from) { into = 10 * into + from; },
                   {.name = "digits", .process_set = set.id, .context = &context});
    EXPECT_THAT(values, Each(13));
  });
}

TEST(UserReduction, ArraysOfDifferentLengthsFailOnAllRanks) {
  expect_run(3, [](Context& context) {
    std::vector<int> values(static_cast<std::size_t>(context.rank() == 2 ? 11 : 10), 1);
    const auto add = [](int& into, const int& from) { into += from; };
    const Error error =
        error_of([&] { allreduce_with(std::span(values), add, {.context = &context}); });
    EXPECT_EQ(error.code(), Errc::mismatch);
    std::vector<int> again(7, 1);
    allreduce_with(std::span(again), add, {.context = &context});
    EXPECT_THAT(again, Each(3));
  });
}

TEST(UserReduction, AnOperationThatThrowsLeavesNobodyWaiting) {
  expect_run(2, [](Context& context) {
    std::vector<int> values(2, context.rank());
    const auto combine = [&](int& into, const int& from) {
      if (context.rank() == 1) throw std::domain_error("no such sum");
      into += from;
    };
    if (context.rank() == 1) {
      EXPECT_THROW(allreduce_with(std::span(values), combine, {.context = &context}),
                   std::domain_error);
    } else {
      const Error error =
          error_of([&] { allreduce_with(std::span(values), combine, {.context = &context}); });
      EXPECT_EQ(error.code(), Errc::mismatch);
    }
  });
}

}  // namespace
}  // namespace hvd
