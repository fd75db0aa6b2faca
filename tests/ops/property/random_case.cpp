#include "property/random_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "host/host_ranks.hpp"
#include "reference.hpp"
#include "transports.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

constexpr std::byte kGuard{0x5A};
constexpr std::size_t kGuardBytes = 64;

/// Draws the same numbers with every standard library, unlike its distributions.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  /// Returns a number from 0 to n-1.
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class T, std::size_t N>
  T one_of(const T (&choices)[N]) {
    return choices[below(N)];
  }

 private:
  std::mt19937_64 random_;
};

std::int64_t draw_count(Draw& draw, int ranks) {
  constexpr std::int64_t kPrimes[] = {2, 3, 7, 31, 127, 257, 1'009, 4'099, 8'191};
  switch (draw.below(5)) {
    case 0:
      return ranks - 1 + static_cast<std::int64_t>(draw.below(3));
    case 1:
      return static_cast<std::int64_t>(draw.below(2));
    case 2:
      return draw.one_of(kPrimes);
    case 3:  // seldom large
      return (std::int64_t{1} << draw.below(draw.one_in(16) ? 17 : 12)) - 1 +
             static_cast<std::int64_t>(draw.below(3));
    default:
      return static_cast<std::int64_t>(draw.below(3'000));
  }
}

/// Returns a multiple of the type's alignment or any number; half of them are 0.
std::size_t draw_shift(Draw& draw, DType dtype) {
  if (draw.one_in(2)) return 0;
  return draw.one_in(2) ? size_of(dtype) * draw.below(16) : draw.below(16);
}

/// Replaces some elements by values for which arithmetic is often wrong.
void put_specials(DType dtype, Buffer& data, Draw& draw) {
  const auto count = static_cast<std::int64_t>(data.size() / size_of(dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    if (!draw.one_in(16)) continue;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double step = smallest_step(dtype);
    const double of_floats[] = {std::numeric_limits<double>::quiet_NaN(),
                                kInfinity,
                                -kInfinity,
                                step,
                                -3 * step,
                                0.0,
                                -0.0};
    if (is_floating(dtype)) {
      store(dtype, data.data(), i, draw.one_of(of_floats));
    } else if (dtype != DType::boolean) {  // the smallest, -1 and 0
      const std::uint64_t smallest = std::uint64_t{1} << (8 * size_of(dtype) - 1);
      const std::uint64_t bits = draw.one_in(3) ? smallest : draw.one_in(2) ? ~std::uint64_t{0} : 0;
      std::memcpy(data.data() + static_cast<std::size_t>(i) * size_of(dtype), &bits,
                  size_of(dtype));  // little endian
    }
  }
}

/// The memory of a tensor with a guard on both sides.
class Guarded {
 public:
  Guarded(const Buffer& values, std::size_t shift, const std::shared_ptr<Arena>& arena)
      : before_(kGuardBytes + shift),
        size_(values.size()),
        block_(arena, before_ + size_ + kGuardBytes) {
    std::fill_n(block_.data(), before_, kGuard);
    std::copy(values.begin(), values.end(), begin());
    std::fill_n(end(), kGuardBytes, kGuard);
  }
  Guarded(std::size_t size, std::size_t shift, const std::shared_ptr<Arena>& arena)
      : Guarded(Buffer(size, kGuard), shift, arena) {}

  /// Returns null when empty, as backends are called.
  [[nodiscard]] std::byte* data() { return size_ == 0 ? nullptr : begin(); }
  /// Copies the values to that offset and returns their address, or null when there are none.
  [[nodiscard]] std::byte* put(const Buffer& values, std::size_t offset) {
    if (values.empty()) return nullptr;
    std::copy(values.begin(), values.end(), begin() + offset);
    return begin() + offset;
  }
  [[nodiscard]] Buffer values() const { return {begin(), end()}; }
  [[nodiscard]] bool intact() const {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    return std::all_of(block_.data(), begin(), is_guard) &&
           std::all_of(end(), end() + kGuardBytes, is_guard);
  }

 private:
  [[nodiscard]] std::byte* begin() const { return block_.data() + before_; }
  [[nodiscard]] std::byte* end() const { return begin() + size_; }

  std::size_t before_;
  std::size_t size_;
  Block block_;
};

/// Returns the sum, product, min or max of special values, where order does not matter, or nothing
/// when all values are ordinary.
std::optional<double> special_result(const RandomCase& test, const std::vector<double>& values) {
  const auto any = [&](auto is) { return std::any_of(values.begin(), values.end(), is); };
  const auto is_nan = [](double x) { return std::isnan(x); };
  const auto is_infinite = [](double x) { return std::isinf(x); };
  if (any(is_nan)) return std::numeric_limits<double>::quiet_NaN();
  if (!any(is_infinite)) return std::nullopt;
  switch (test.op) {
    case ReduceOp::min:
      return *std::min_element(values.begin(), values.end());
    case ReduceOp::max:
      return *std::max_element(values.begin(), values.end());
    case ReduceOp::product:
      return std::accumulate(values.begin(), values.end(), 1.0, std::multiplies<>());
    default:
      return std::accumulate(values.begin(), values.end(), 0.0);
  }
}

/// Returns whether an infinity may meet a product that became zero, which depends on the order.
bool may_underflow(const RandomCase& test, const std::vector<double>& values) {
  if (test.op != ReduceOp::product) return false;
  long double least = 1;  // smallest product of any of them
  for (const double x : values) least *= std::min(std::fabs(x), 1.0);
  return least > 0 && least <= 4 * smallest_step(test.dtype);
}

/// Checks floating-point elements that are not finite, here and in the inputs, and then removes
/// them from both.
void check_specials(const RandomCase& test, std::vector<Buffer>& inputs, Buffer& result) {
  const auto count = static_cast<std::int64_t>(result.size() / size_of(test.dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<double> values;
    for (const Buffer& input : inputs) values.push_back(load(test.dtype, input.data(), i));
    const std::optional<double> wanted = special_result(test, values);
    if (!wanted) continue;
    const double found = load(test.dtype, result.data(), i);
    if (may_underflow(test, values)) {
      ASSERT_FALSE(std::isfinite(found)) << found << ", element " << i;
    } else if (std::isnan(*wanted)) {
      ASSERT_TRUE(std::isnan(found)) << found << " for a NaN, element " << i;
    } else {
      ASSERT_EQ(found, *wanted) << "element " << i;
    }
    for (Buffer& input : inputs) store(test.dtype, input.data(), i, 0);
    store(test.dtype, result.data(), i, 0);
  }
}

void check_reduced(const RandomCase& test, std::vector<Buffer> inputs, Buffer result) {
  if (test.specials && is_floating(test.dtype)) check_specials(test, inputs, result);
  if (testing::Test::HasFatalFailure() || result.empty()) return;
  expect_reduced({.dtype = test.dtype,
                  .op = test.op,
                  .prescale = test.prescale,
                  .postscale = test.postscale,
                  .divisor = test.ranks},
                 inputs, result);
}

Buffer cut(const Buffer& bytes, std::int64_t begin, std::int64_t count, DType dtype) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  return {bytes.begin() + begin * size, bytes.begin() + (begin + count) * size};
}

}  // namespace

std::string RandomCase::text() const {
  return fmt::format(
      "case {} of {} ranks: {} {} {} of {}{} elements{}{}, shifts {} {}, scales {} {}", seed, ranks,
      to_string(kind), to_string(dtype), to_string(op), counts.front(),
      counts.size() > 1 ? " and other" : "", in_place ? " in place" : "",
      specials ? ", special values" : "", shift, output_shift, prescale, postscale);
}

std::int64_t RandomCase::part(std::size_t t, int rank) const {
  const std::int64_t base = counts[t];
  return (base + rank * 5) % 7 == 0 ? 0 : base / ranks + (rank * 3 + base) % 5;
}

std::int64_t RandomCase::sent(int a, int b) const {
  const std::int64_t base = counts.front();
  return (base + a + 2 * b) % 5 == 0 ? 0 : base / ranks + (a * 3 + b) % 4;
}

bool RandomCase::in_arena(std::size_t t, int rank) const {
  return !scattered || (seed + t + static_cast<std::uint64_t>(rank)) % 3 != 0;
}

Buffer RandomCase::input(std::size_t t, int rank) const {
  std::int64_t count = counts[t];
  if (kind == OpKind::allgather) count = part(t, rank);
  if (kind == OpKind::reducescatter || kind == OpKind::alltoall) {
    count = 0;
    for (int other = 0; other < ranks; ++other) {
      count += kind == OpKind::alltoall ? sent(rank, other) : part(t, other);
    }
  }
  const std::uint64_t own = seed * 1'000'003 + t * 101 + static_cast<std::uint64_t>(rank);
  Buffer data = random_values(dtype, count, own);
  if (specials) {
    Draw draw(own);
    put_specials(dtype, data, draw);
  }
  return data;
}

RandomCase draw_case(std::uint64_t seed, int ranks) {
  Draw draw(seed * 31 + static_cast<std::uint64_t>(ranks));
  RandomCase test;
  test.seed = seed;
  test.ranks = ranks;
  constexpr OpKind kKinds[] = {OpKind::allreduce,     OpKind::allreduce, OpKind::allreduce,
                               OpKind::allreduce,     OpKind::allreduce, OpKind::reducescatter,
                               OpKind::reducescatter, OpKind::allgather, OpKind::broadcast,
                               OpKind::alltoall};
  test.kind = draw.one_of(kKinds);
  test.dtype = draw.one_of(kAllDTypes);
  do {
    test.op = draw.one_of(kAllOps);
  } while (test.dtype == DType::boolean && test.op == ReduceOp::average);
  const bool fuses = test.kind != OpKind::alltoall;
  for (std::uint64_t left = fuses && draw.one_in(3) ? 2 + draw.below(6) : 1; left > 0; --left) {
    test.counts.push_back(draw_count(draw, ranks));
  }
  test.in_place = draw.one_in(2);
  test.shift = draw_shift(draw, test.dtype);
  test.output_shift = draw.one_in(2) ? test.shift : draw_shift(draw, test.dtype);
  test.specials = draw.one_in(4);
  const bool scales = !(is_floating(test.dtype) && test.specials) && draw.one_in(4);
  constexpr double kScales[] = {0.5, 2, -1, 0.25, 0.3};
  if (scales && draw.one_in(2)) test.prescale = draw.one_of(kScales);
  if (scales) test.postscale = draw.one_of(kScales);
  test.root = static_cast<int>(draw.below(static_cast<std::uint64_t>(ranks)));
  test.scattered = draw.one_in(4);
  return test;
}

std::vector<Buffer> run_case(Backend& backend, int rank, const RandomCase& test,
                             const std::shared_ptr<Arena>& arena) {
  const std::size_t tensors = test.counts.size();
  std::vector<Guarded> inputs;
  std::vector<Guarded> outputs;
  std::vector<std::vector<std::int64_t>> parts(tensors);
  const bool same_size = test.kind == OpKind::allreduce || test.kind == OpKind::broadcast;
  for (std::size_t t = 0; t < tensors; ++t) {
    const Buffer values = test.input(t, rank);
    const auto memory = test.in_arena(t, rank) ? arena : nullptr;
    inputs.emplace_back(values, test.shift, memory);
    std::int64_t received = 0;
    for (int other = 0; other < test.ranks; ++other) {
      parts[t].push_back(test.part(t, other));
      received += test.kind == OpKind::alltoall ? test.sent(other, rank) : test.part(t, other);
    }
    if (test.kind == OpKind::reducescatter) received = test.part(t, rank);
    outputs.emplace_back(
        same_size ? values.size() : static_cast<std::size_t>(received) * size_of(test.dtype),
        test.output_shift, memory);
  }
  std::vector<Buffer> before;
  for (const Guarded& input : inputs) before.push_back(input.values());
  // A broadcast is in place at its root and has no input on other ranks.
  const bool in_place = same_size && (test.in_place || test.kind == OpKind::broadcast);
  std::vector<Guarded>& results = in_place ? inputs : outputs;

  std::vector<TensorSlice> slices;
  std::vector<GatherSlice> gathers;
  std::vector<ScatterSlice> scatters;
  for (std::size_t t = 0; t < tensors; ++t) {
    slices.push_back({inputs[t].data(), results[t].data(), same_size ? test.counts[t] : 0});
    gathers.push_back({inputs[t].data(), outputs[t].data(), parts[t]});
    if (test.kind == OpKind::allgather && test.in_place) {
      const auto first =
          std::accumulate(parts[t].begin(), parts[t].begin() + rank, std::int64_t{0});
      gathers.back().input =
          outputs[t].put(before[t], static_cast<std::size_t>(first) * size_of(test.dtype));
    }
    scatters.push_back({inputs[t].data(), outputs[t].data(), parts[t]});
  }
  switch (test.kind) {
    case OpKind::allreduce:
      backend.allreduce({slices, {}, test.dtype, test.op, test.prescale, test.postscale}, soon());
      break;
    case OpKind::reducescatter:
      backend.reducescatter({scatters, {}, test.dtype, test.op, test.prescale, test.postscale},
                            soon());
      break;
    case OpKind::allgather:
      backend.allgather({gathers, {}, test.dtype}, soon());
      break;
    case OpKind::broadcast:
      backend.broadcast({slices, {}, test.dtype, test.root}, soon());
      break;
    default: {
      std::vector<std::int64_t> send;
      std::vector<std::int64_t> receive;
      for (int other = 0; other < test.ranks; ++other) {
        send.push_back(test.sent(rank, other));
        receive.push_back(test.sent(other, rank));
      }
      backend.alltoall({inputs[0].data(), outputs[0].data(), send, receive, {}, test.dtype},
                       soon());
    }
  }
  std::vector<Buffer> values;
  for (std::size_t t = 0; t < tensors; ++t) {
    EXPECT_TRUE(inputs[t].intact() && outputs[t].intact()) << "wrote beside a tensor";
    EXPECT_TRUE(in_place || inputs[t].values() == before[t]) << "the input was written";
    values.push_back(results[t].values());
  }
  return values;
}

void check_case(const RandomCase& test, const std::vector<std::vector<Buffer>>& results) {
  for (std::size_t t = 0; t < test.counts.size(); ++t) {
    std::vector<Buffer> inputs;
    for (int rank = 0; rank < test.ranks; ++rank) inputs.push_back(test.input(t, rank));
    if (test.kind == OpKind::reducescatter || test.kind == OpKind::alltoall) {
      std::int64_t begin = 0;  // of a rank's part in every input of a reducescatter
      for (int rank = 0; rank < test.ranks; ++rank) {
        const Buffer& result = results[static_cast<std::size_t>(rank)][t];
        std::vector<Buffer> parts;
        for (int from = 0; from < test.ranks; ++from) {
          std::int64_t first = begin;
          if (test.kind == OpKind::alltoall) {
            first = 0;
            for (int to = 0; to < rank; ++to) first += test.sent(from, to);
          }
          const std::int64_t count =
              test.kind == OpKind::alltoall ? test.sent(from, rank) : test.part(t, rank);
          parts.push_back(cut(inputs[static_cast<std::size_t>(from)], first, count, test.dtype));
        }
        if (test.kind == OpKind::alltoall) {
          Buffer all;
          for (const Buffer& part : parts) all.insert(all.end(), part.begin(), part.end());
          ASSERT_TRUE(result == all) << "rank " << rank;
        } else {
          check_reduced(test, std::move(parts), result);
          begin += test.part(t, rank);
        }
        if (testing::Test::HasFatalFailure()) return;
      }
      continue;
    }
    // All ranks hold the same bits.
    for (std::size_t rank = 1; rank < results.size(); ++rank) {
      ASSERT_TRUE(results[rank][t] == results[0][t]) << "bits differ on rank " << rank;
    }
    if (test.kind == OpKind::allreduce) {
      check_reduced(test, std::move(inputs), results[0][t]);
    } else if (test.kind == OpKind::broadcast) {
      ASSERT_TRUE(results[0][t] == inputs[static_cast<std::size_t>(test.root)]);
    } else {
      Buffer all;
      for (const Buffer& input : inputs) all.insert(all.end(), input.begin(), input.end());
      ASSERT_TRUE(results[0][t] == all);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace hvd::test
