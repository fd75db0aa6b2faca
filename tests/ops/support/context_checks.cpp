#include "support/context_checks.hpp"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>

#include <hvd/hvd.hpp>

namespace hvd::test {
namespace {

template <class T>
constexpr bool kIsComplex = is_complex(kDTypeOf<T>);

/// Returns a value that is `number` times that of 1, with an imaginary part if the type has one.
template <class T>
T value_of(int number) {
  if constexpr (kIsComplex<T>) {
    return T(1, -2) * static_cast<typename T::value_type>(number);
  } else {
    return static_cast<T>(number);
  }
}

template <class T>
std::vector<T> iota(int count, int first) {
  std::vector<T> values;
  for (int i = 0; i < count; ++i) values.push_back(value_of<T>(first + i));
  return values;
}

/// Runs in the ranks of `set`, which include this one.
template <class T>
void check_arrays_of(Context& context, const ProcessSet& set) {
  const CollectiveOptions in_set{.process_set = set.id, .context = &context};
  const int n = static_cast<int>(std::ssize(set.ranks));
  const auto place = static_cast<int>(
      std::find(set.ranks.begin(), set.ranks.end(), context.rank()) - set.ranks.begin());
  const T own_value = value_of<T>(place);
  const std::vector<T> ones(5, value_of<T>(1));
  std::vector<T> sums(5);
  allreduce(std::span(ones), std::span(sums),
            {.op = ReduceOp::sum, .process_set = set.id, .context = &context});
  EXPECT_EQ(sums, std::vector<T>(5, value_of<T>(n)));

  std::vector<T> data(3, own_value);
  broadcast(std::span(data), set.ranks.back(), in_set);
  EXPECT_EQ(data, std::vector<T>(3, value_of<T>(n - 1)));

  const std::vector<T> own(static_cast<std::size_t>(place), own_value);  // none on the first rank
  std::vector<T> all;
  for (int other = 0; other < n; ++other) {
    all.insert(all.end(), static_cast<std::size_t>(other), value_of<T>(other));
  }
  EXPECT_EQ(allgather(std::span(own), in_set), all);

  // The first rank gets one element more.
  constexpr ReduceOp kOp = kIsComplex<T> ? ReduceOp::average : ReduceOp::max;
  const std::vector<T> whole = iota<T>(2 * n + 1, 0);
  const std::vector<T> part =
      reducescatter(std::span(whole), {.op = kOp, .process_set = set.id, .context = &context});
  EXPECT_EQ(part, place == 0 ? iota<T>(3, 0) : iota<T>(2, 2 * place + 1));

  std::vector<std::int64_t> splits(static_cast<std::size_t>(n), 2);
  splits.front() = 0;
  const std::vector<T> sent(static_cast<std::size_t>(2 * (n - 1)), own_value);
  const Received<T> received = alltoall(std::span(sent), std::span(splits), in_set);
  std::vector<T> wanted;
  for (int other = 0; place > 0 && other < n; ++other) {
    wanted.insert(wanted.end(), 2, value_of<T>(other));
  }
  EXPECT_EQ(received.data, wanted);
  EXPECT_EQ(received.splits,
            std::vector<std::int64_t>(static_cast<std::size_t>(n), place == 0 ? 0 : 2));
}

/// Has a stricter alignment than allocators guarantee.
struct alignas(64) Wide {
  std::int64_t value;
};

}  // namespace

void check_allreduce(Context& context) {
  const int n = context.size();
  std::vector<float> data(1000, static_cast<float>(context.rank() + 1));
  allreduce<float>(data, {.context = &context});
  EXPECT_EQ(data, std::vector<float>(1000, static_cast<float>(n + 1) / 2));

  const std::vector<std::int64_t> ones(10, 1);
  std::vector<std::int64_t> sums(10);
  allreduce_async(
      ones.data(), sums.data(), 10, DType::i64,
      {.name = "sums", .op = ReduceOp::sum, .prescale = 2.0, .postscale = 3.0, .context = &context})
      .wait();
  EXPECT_EQ(sums, std::vector<std::int64_t>(10, 6 * n));
  EXPECT_EQ(ones, std::vector<std::int64_t>(10, 1));
}

void check_broadcast(Context& context) {
  std::vector<double> data(100, context.rank());
  broadcast_async(data.data(), 100, DType::f64, context.size() - 1, {.context = &context}).wait();
  EXPECT_EQ(data, std::vector<double>(100, context.size() - 1));
}

void check_allgather(Context& context) {
  const std::vector<std::uint8_t> own(static_cast<std::size_t>(context.rank()),
                                      static_cast<std::uint8_t>(context.rank()));
  Bytes all;
  allgather_async(own.data(), context.rank(), DType::u8, all, {.context = &context}).wait();
  Bytes wanted;
  for (int rank = 0; rank < context.size(); ++rank) {
    wanted.insert(wanted.end(), static_cast<std::size_t>(rank), std::byte(rank));
  }
  EXPECT_EQ(all, wanted);
  barrier({.context = &context});
}

void check_arrays(Context& context) {
  const ProcessSet everybody{.id = 0, .ranks = iota<int>(context.size(), 0)};
  check_arrays_of<std::uint8_t>(context, everybody);
  check_arrays_of<std::int8_t>(context, everybody);
  check_arrays_of<std::int16_t>(context, everybody);
  check_arrays_of<std::int32_t>(context, everybody);
  check_arrays_of<std::int64_t>(context, everybody);
  check_arrays_of<float>(context, everybody);
  check_arrays_of<double>(context, everybody);
  check_arrays_of<std::complex<float>>(context, everybody);
  check_arrays_of<std::complex<double>>(context, everybody);
}

void check_process_sets(Context& context) {
  std::vector<std::vector<int>> groups{{0}};
  if (context.size() > 1) groups.push_back({0, context.size() - 1});
  if (context.size() > 2) groups.push_back(iota<int>(context.size() - 1, 1));
  std::vector<ProcessSet> sets;
  for (const std::vector<int>& ranks : groups) sets.push_back(context.add_process_set(ranks));
  for (int step = 0; step < 3; ++step) {
    for (const ProcessSet& set : sets) {
      if (std::count(set.ranks.begin(), set.ranks.end(), context.rank()) == 0) continue;
      check_arrays_of<std::int32_t>(context, set);
      check_arrays_of<double>(context, set);
      check_arrays_of<std::complex<double>>(context, set);
      barrier({.process_set = set.id, .context = &context});
    }
    check_allreduce(context);
  }
  for (const ProcessSet& set : sets) context.remove_process_set(set);
}

void check_groups(Context& context) {
  const int n = context.size();
  const auto ranks = static_cast<std::size_t>(n);
  const auto wait = [](const std::vector<Work>& works) {
    ASSERT_EQ(works.size(), 2U);
    for (const Work& work : works) work.wait();
  };
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> a(2, static_cast<float>(context.rank()));
    const std::vector<std::int64_t> b(ranks, context.rank());
    std::vector<float> sums(2);
    std::vector<std::int64_t> sums_too(ranks);
    wait(grouped_allreduce_async(
        std::vector<AllreduceItem>{{a.data(), sums.data(), 2, DType::f32, "x"},
                                   {b.data(), sums_too.data(), n, DType::i64, "y"}},
        {.name = "sums", .op = ReduceOp::sum, .context = &context}));
    EXPECT_EQ(sums, std::vector<float>(2, static_cast<float>(n * (n - 1) / 2)));
    EXPECT_EQ(sums_too, std::vector<std::int64_t>(ranks, n * (n - 1) / 2));

    std::vector<float> from_root = a;
    std::vector<std::int64_t> from_root_too = b;
    wait(grouped_broadcast_async(
        std::vector<BroadcastItem>{{from_root.data(), 2, DType::f32, "x"},
                                   {from_root_too.data(), n, DType::i64, "y"}},
        n - 1, {.name = "broadcasts", .context = &context}));
    EXPECT_EQ(from_root, std::vector<float>(2, static_cast<float>(n - 1)));
    EXPECT_EQ(from_root_too, std::vector<std::int64_t>(ranks, n - 1));

    Bytes first;
    Bytes second;
    const std::vector<ResizedItem> items{{a.data(), 2, DType::f32, &first, "x"},
                                         {b.data(), n, DType::i64, &second, "y"}};
    wait(grouped_allgather_async(items, {.name = "gathers", .context = &context}));
    EXPECT_EQ(first.size(), 2 * ranks * sizeof(float));
    EXPECT_EQ(second.size(), ranks * ranks * sizeof(std::int64_t));
    wait(grouped_reducescatter_async(
        items, {.name = "scatters", .op = ReduceOp::sum, .context = &context}));
    ASSERT_EQ(second.size(), sizeof(std::int64_t));
    std::int64_t sum = 0;
    std::memcpy(&sum, second.data(), sizeof sum);
    EXPECT_EQ(sum, n * (n - 1) / 2);

    const std::vector<std::int64_t> one_each(ranks, 1);
    std::vector<std::int64_t> from;
    std::vector<std::int64_t> from_too;
    const std::vector<AlltoallItem> exchanges{
        {b.data(), one_each, DType::i64, &first, &from, "x"},
        {b.data(), one_each, DType::i64, &second, &from_too, "y"}};
    wait(grouped_alltoall_async(exchanges, {.name = "exchanges", .context = &context}));
    EXPECT_EQ(from, one_each);
    EXPECT_EQ(from_too, one_each);
    const auto everybody = iota<std::int64_t>(n, 0);
    EXPECT_EQ(first.size(), ranks * sizeof(std::int64_t));
    EXPECT_EQ(std::memcmp(second.data(), everybody.data(), second.size()), 0);
  }
  const std::vector<ResizedItem> nowhere{{nullptr, 0, DType::f32, nullptr, "z"}};
  EXPECT_EQ(error_of([&] {
              static_cast<void>(grouped_allgather_async(nowhere, {.context = &context}));
            }).code(),
            Errc::invalid_argument);
  barrier({.context = &context});
}

void check_own_reductions(Context& context) {
  const int n = context.size();
  struct Three {
    std::uint8_t bytes[3];
  };
  std::vector<Three> digits(11, {{static_cast<std::uint8_t>(context.rank() + 1), 0, 0}});
  allreduce_with(std::span(digits),
                 [](Three& into, const Three& from) {
                   into.bytes[0] = static_cast<std::uint8_t>(into.bytes[0] * 5 + from.bytes[0]);
                   ++into.bytes[1];
                 },
                 {.context = &context});
  int expected = 1;  // in rank order
  for (int rank = 1; rank < n; ++rank) expected = expected * 5 + rank + 1;
  for (const Three& one : digits) {
    EXPECT_EQ(one.bytes[0], expected);
    EXPECT_EQ(one.bytes[1], n - 1);
  }
  std::vector<Wide> wide(7, {context.rank()});
  allreduce_with(std::span(wide),
                 [](Wide& into, const Wide& from) {
                   EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&from) % alignof(Wide), 0U);
                   into.value += from.value;
                 },
                 {.context = &context});
  for (const Wide& one : wide) EXPECT_EQ(one.value, n * (n - 1) / 2);
  if (n == 1) return;
  // The last rank's array is longer by the one element that it combines itself.
  std::vector<int> values(static_cast<std::size_t>(context.rank() == n - 1 ? n : n - 1), 1);
  const auto add = [](int& into, const int& from) { into += from; };
  EXPECT_EQ(error_of([&] { allreduce_with(std::span(values), add, {.context = &context}); }).code(),
            Errc::mismatch);
}

void check_messages(Context& context) {
  const int n = context.size();
  if (n == 1) return;
  const int next = (context.rank() + 1) % n;
  const int previous = (context.rank() + n - 1) % n;
  const std::vector<double> out(100'000, context.rank());
  std::vector<double> in(out.size());
  const Work sent =
      send_async(out.data(), std::ssize(out), DType::f64, next, {.context = &context});
  recv(std::span(in), previous, {.context = &context});
  sent.wait();
  EXPECT_EQ(in, std::vector<double>(out.size(), previous));
}

}  // namespace hvd::test
