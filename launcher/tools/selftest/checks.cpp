#include "checks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace hvd::selftest {
namespace {

/// The counts are one element, a few, and enough for every algorithm to cut them into segments.
constexpr std::array<std::int64_t, 3> kCounts = {1, 1003, 300'007};

/// Returns an element of `rank`: 1, 2 or 3, so that every sum is exact.
int value_of(int rank, std::int64_t index) { return 1 + static_cast<int>((index + rank) % 3); }

double expected_of(ReduceOp op, std::int64_t index, int ranks) {
  double sum = 0;
  double product = 1;
  double least = 3;
  double most = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    const int value = value_of(rank, index);
    sum += value;
    product *= rank < 2 ? value : 1;  // see `own_value`
    least = std::min<double>(least, value);
    most = std::max<double>(most, value);
  }
  switch (op) {
    case ReduceOp::sum:
      return sum;
    case ReduceOp::product:
      return product;
    case ReduceOp::min:
      return least;
    case ReduceOp::max:
      return most;
    case ReduceOp::average:
      break;
  }
  return sum / ranks;
}

/// Returns an element that `rank` contributes. A product over many ranks would overflow, so only
/// two of them contribute other factors than 1.
int own_value(ReduceOp op, int rank, std::int64_t index) {
  return op == ReduceOp::product && rank >= 2 ? 1 : value_of(rank, index);
}

template <class T>
std::vector<T> own_data(ReduceOp op, int rank, std::int64_t count) {
  std::vector<T> data(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    data[static_cast<std::size_t>(i)] = static_cast<T>(own_value(op, rank, i));
  }
  return data;
}

bool close(double value, double expected) {
  return std::fabs(value - expected) <= 1e-5 * std::fabs(expected);
}

template <class T>
std::int64_t check_allreduce(Context& context, ReduceOp op) {
  std::int64_t wrong = 0;
  for (const std::int64_t count : kCounts) {
    auto data = own_data<T>(op, context.rank(), count);
    allreduce(std::span(data), {.op = op, .context = &context});
    for (std::int64_t i = 0; i < count; ++i) {
      const double expected = expected_of(op, i, context.size());
      const double value = static_cast<double>(data[static_cast<std::size_t>(i)]);
      if (!close(value, std::is_integral_v<T> ? std::trunc(expected) : expected)) ++wrong;
    }
  }
  return wrong;
}

/// The last rank has 2.0, which both half types encode as 0x4000, and the others have 1.0.
std::int64_t check_half(Context& context, DType dtype, std::uint16_t one) {
  constexpr std::uint16_t kTwo = 0x4000;
  const bool last = context.rank() == context.size() - 1;
  std::vector<std::uint16_t> data(1003, last ? kTwo : one);
  allreduce(data.data(), data.data(), std::ssize(data), dtype,
            {.op = ReduceOp::max, .context = &context});
  return std::count_if(data.begin(), data.end(), [](std::uint16_t x) { return x != kTwo; });
}

std::int64_t check_group(Context& context) {
  constexpr int kItems = 5;
  std::vector<std::vector<float>> data;
  std::vector<AllreduceItem> items;
  for (int i = 0; i < kItems; ++i) {
    data.push_back(own_data<float>(ReduceOp::sum, context.rank(), 100 * (i + 1)));
  }
  for (auto& one : data) {
    items.push_back({one.data(), one.data(), std::ssize(one), DType::f32, ""});
  }
  for (const Work& work :
       grouped_allreduce_async(items, {.op = ReduceOp::sum, .context = &context})) {
    work.wait();
  }
  std::int64_t wrong = 0;
  for (const auto& one : data) {
    for (std::int64_t i = 0; i < std::ssize(one); ++i) {
      const double expected = expected_of(ReduceOp::sum, i, context.size());
      if (!close(one[static_cast<std::size_t>(i)], expected)) ++wrong;
    }
  }
  return wrong;
}

std::int32_t element(const Bytes& bytes, std::int64_t index) {
  std::int32_t value = 0;
  std::memcpy(&value, bytes.data() + static_cast<std::size_t>(index) * sizeof value, sizeof value);
  return value;
}

bool has_elements(const Bytes& bytes, std::int64_t count) {
  return bytes.size() == static_cast<std::size_t>(count) * sizeof(std::int32_t);
}

/// Every rank contributes another number of elements.
std::int64_t check_allgather(Context& context) {
  const auto own = own_data<std::int32_t>(ReduceOp::sum, context.rank(), 10 + context.rank());
  Bytes output;
  allgather_async(own.data(), std::ssize(own), DType::i32, output, {.context = &context}).wait();
  std::int64_t all = 0;
  for (int rank = 0; rank < context.size(); ++rank) all += 10 + rank;
  if (!has_elements(output, all)) return all;
  std::int64_t wrong = 0;
  std::int64_t at = 0;
  for (int rank = 0; rank < context.size(); ++rank) {
    for (std::int64_t i = 0; i < 10 + rank; ++i) {
      if (element(output, at++) != value_of(rank, i)) ++wrong;
    }
  }
  return wrong;
}

std::int64_t check_broadcast(Context& context) {
  const int root = context.size() - 1;
  std::int64_t wrong = 0;
  for (const std::int64_t count : kCounts) {
    auto data = own_data<std::int32_t>(ReduceOp::sum, context.rank(), count);
    broadcast(data.data(), count, DType::i32, root, {.context = &context});
    for (std::int64_t i = 0; i < count; ++i) {
      if (data[static_cast<std::size_t>(i)] != value_of(root, i)) ++wrong;
    }
  }
  return wrong;
}

std::int64_t check_reducescatter(Context& context) {
  constexpr std::int64_t kCount = 1003;
  const std::int64_t ranks = context.size();
  const std::int64_t rank = context.rank();
  const auto data = own_data<std::int32_t>(ReduceOp::sum, context.rank(), kCount);
  Bytes output;
  reducescatter_async(data.data(), kCount, DType::i32, output,
                      {.op = ReduceOp::sum, .context = &context})
      .wait();
  const std::int64_t begin = rank * (kCount / ranks) + std::min(rank, kCount % ranks);
  const std::int64_t own = kCount / ranks + (rank < kCount % ranks ? 1 : 0);
  if (!has_elements(output, own)) return own;
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < own; ++i) {
    const double expected = expected_of(ReduceOp::sum, begin + i, context.size());
    if (!close(element(output, i), expected)) ++wrong;
  }
  return wrong;
}

/// Rank r sends i + 1 elements of value 100 r + i to rank i.
std::int64_t check_alltoall(Context& context) {
  std::vector<std::int64_t> splits;
  std::vector<std::int32_t> data;
  for (int to = 0; to < context.size(); ++to) {
    splits.push_back(to + 1);
    data.insert(data.end(), static_cast<std::size_t>(to) + 1, 100 * context.rank() + to);
  }
  Bytes output;
  std::vector<std::int64_t> received;
  alltoall_async(data.data(), splits, DType::i32, output, received, {.context = &context}).wait();
  const std::int64_t each = context.rank() + 1;
  if (!has_elements(output, each * context.size())) return each;
  std::int64_t wrong = 0;
  for (int from = 0; from < context.size(); ++from) {
    if (received.at(static_cast<std::size_t>(from)) != each) ++wrong;
    for (std::int64_t i = 0; i < each; ++i) {
      if (element(output, from * each + i) != 100 * from + context.rank()) ++wrong;
    }
  }
  return wrong;
}

/// Each rank sends to the next one.
std::int64_t check_send(Context& context) {
  if (context.size() == 1) return 0;
  const int to = (context.rank() + 1) % context.size();
  const int from = (context.rank() + context.size() - 1) % context.size();
  auto out = own_data<std::int32_t>(ReduceOp::sum, context.rank(), 1003);
  std::vector<std::int32_t> in(out.size());
  const Work sent = send_async(out.data(), std::ssize(out), DType::i32, to, {.context = &context});
  recv(std::span(in), from, {.context = &context});
  sent.wait();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < std::ssize(in); ++i) {
    if (in[static_cast<std::size_t>(i)] != value_of(from, i)) ++wrong;
  }
  return wrong;
}

/// The ranks with even numbers compute a sum.
std::int64_t check_process_set(Context& context) {
  std::vector<int> ranks;
  for (int rank = 0; rank < context.size(); rank += 2) ranks.push_back(rank);
  const ProcessSet set = context.add_process_set(ranks);
  std::int64_t wrong = 0;
  if (context.rank() % 2 == 0) {
    std::vector<float> data(100, static_cast<float>(context.rank()));
    allreduce(std::span(data), {.op = ReduceOp::sum, .process_set = set.id, .context = &context});
    const int sum = std::accumulate(ranks.begin(), ranks.end(), 0);
    wrong = std::count_if(data.begin(), data.end(), [sum](float x) { return !close(x, sum); });
  }
  context.remove_process_set(set);
  return wrong;
}

template <class T>
void add_reductions(std::vector<Check>& checks) {
  for (const ReduceOp op :
       {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
    checks.push_back({fmt::format("allreduce {} {}", to_string(op), to_string(kDTypeOf<T>)),
                      [op](Context& context) { return check_allreduce<T>(context, op); }});
  }
}

}  // namespace

std::vector<Check> all_checks() {
  std::vector<Check> checks;
  add_reductions<float>(checks);
  add_reductions<double>(checks);
  add_reductions<std::int32_t>(checks);
  add_reductions<std::int64_t>(checks);
  constexpr std::uint16_t kOneF16 = 0x3C00;
  constexpr std::uint16_t kOneBf16 = 0x3F80;
  checks.push_back({"allreduce max f16",
                    [](Context& context) { return check_half(context, DType::f16, kOneF16); }});
  checks.push_back({"allreduce max bf16",
                    [](Context& context) { return check_half(context, DType::bf16, kOneBf16); }});
  checks.push_back({"grouped allreduce", check_group});
  checks.push_back({"allgather", check_allgather});
  checks.push_back({"broadcast", check_broadcast});
  checks.push_back({"reducescatter", check_reducescatter});
  checks.push_back({"alltoall", check_alltoall});
  checks.push_back({"send and recv", check_send});
  checks.push_back({"process set", check_process_set});
  checks.push_back({"barrier", [](Context& context) {
                      barrier({.context = &context});
                      return std::int64_t{0};
                    }});
  return checks;
}

}  // namespace hvd::selftest
