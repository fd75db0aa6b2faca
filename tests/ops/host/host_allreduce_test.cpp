// Compares allreduce within a host, by all of its algorithms, with a serial reference, and the bits
// of the ranks with each other.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include <hvd/core/internal/backend.hpp>

#include "host/host_ranks.hpp"
#include "reference.hpp"
#include "transports.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using Buffer = std::vector<std::byte>;

/// Says whether tensors lie in the arena, in private memory, or some here and some there.
enum class Where { arena, apart, mixed };

struct Case {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::vector<std::int64_t> counts;
  Where where = Where::apart;
  bool in_place = false;
  std::size_t shift = 0;  ///< bytes by which every tensor is misaligned
  double prescale = 1.0;
  double postscale = 1.0;

  [[nodiscard]] Buffer input(int rank, std::size_t tensor) const {
    return random_values(dtype, counts[tensor],
                         static_cast<std::uint64_t>(rank) * 977 + tensor + 1);
  }
  /// If mixed, the first tensor lies in the arena on all ranks, the second on some, the third on
  /// none, and so on.
  [[nodiscard]] bool in_arena(int rank, std::size_t tensor) const {
    if (where != Where::mixed) return where == Where::arena;
    return tensor % 3 == 0 || (tensor % 3 == 1 && rank % 2 == 0);
  }
  [[nodiscard]] std::string text() const {
    return std::string(to_string(dtype)) + ' ' + std::string(to_string(op)) + " of " +
           std::to_string(counts.front()) + (counts.size() > 1 ? " and more" : "") +
           (in_place ? " in place" : "") + " where " + std::to_string(static_cast<int>(where)) +
           " shift " + std::to_string(shift);
  }
};

constexpr std::byte kGuard{0x5A};

/// Runs the case and returns the outputs, one per tensor. Checks that nothing else was written.
std::vector<Buffer> run_case(HostEngine& engine, int rank, const Case& test) {
  const std::size_t size = size_of(test.dtype);
  std::vector<Block> inputs;
  std::vector<Block> outputs;
  std::vector<TensorSlice> slices;
  for (std::size_t t = 0; t < test.counts.size(); ++t) {
    const Buffer values = test.input(rank, t);
    const std::size_t padded = values.size() + test.shift + 1;
    const auto arena = test.in_arena(rank, t) ? engine.arena : nullptr;
    inputs.emplace_back(arena, padded);
    outputs.emplace_back(arena, padded);
    std::fill_n(inputs.back().data(), padded, kGuard);
    std::fill_n(outputs.back().data(), padded, kGuard);
    std::byte* const input = inputs.back().data() + test.shift;
    std::byte* const output = test.in_place ? input : outputs.back().data() + test.shift;
    if (!values.empty()) std::memcpy(input, values.data(), values.size());
    slices.push_back(test.counts[t] == 0 ? TensorSlice{}
                                         : TensorSlice{input, output, test.counts[t]});
  }
  engine.backend->allreduce({.tensors = slices,
                             .device = {},
                             .dtype = test.dtype,
                             .op = test.op,
                             .prescale = test.prescale,
                             .postscale = test.postscale},
                            soon());
  std::vector<Buffer> results;
  for (std::size_t t = 0; t < test.counts.size(); ++t) {
    const std::size_t bytes = static_cast<std::size_t>(test.counts[t]) * size;
    const std::byte* const written = (test.in_place ? inputs[t] : outputs[t]).data();
    EXPECT_EQ(written[test.shift + bytes], kGuard) << "wrote beyond the end";
    if (test.shift > 0) {
      EXPECT_EQ(written[test.shift - 1], kGuard) << "wrote before the begin";
    }
    results.emplace_back(written + test.shift, written + test.shift + bytes);
    if (test.in_place) continue;
    const Buffer values = test.input(rank, t);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), inputs[t].data() + test.shift))
        << "the input was written";
  }
  return results;
}

/// Runs the cases. Results must be right on rank 0 and have the same bits on the other ranks.
void run_all(int size, const std::vector<Case>& cases) {
  std::mutex mutex;
  std::vector<std::vector<std::vector<Buffer>>> by_rank(static_cast<std::size_t>(size));
  expect_host_ranks(size, [&](int rank, HostEngine& engine) {
    std::vector<std::vector<Buffer>> results;
    for (const Case& test : cases) results.push_back(run_case(engine, rank, test));
    const std::lock_guard lock(mutex);
    by_rank[static_cast<std::size_t>(rank)] = std::move(results);
  });
  if (testing::Test::HasFailure()) return;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const Case& test = cases[c];
    SCOPED_TRACE(test.text());
    for (std::size_t t = 0; t < test.counts.size(); ++t) {
      std::vector<Buffer> inputs;
      for (int rank = 0; rank < size; ++rank) inputs.push_back(test.input(rank, t));
      expect_reduced({test.dtype, test.op, test.prescale, test.postscale, size}, inputs,
                     by_rank[0][c][t]);
    }
    for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
      ASSERT_TRUE(by_rank[rank][c] == by_rank[0][c]) << "bits differ on rank " << rank;
    }
    if (testing::Test::HasFailure()) return;
  }
}

constexpr Where kPlaces[] = {Where::arena, Where::apart, Where::mixed};

class HostAllreduceTest : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] static int size() { return GetParam(); }
};

TEST_P(HostAllreduceTest, EveryTypeOperationAndAwkwardSize) {
  std::vector<Case> cases;
  const std::int64_t n = size();
  int turn = 0;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (!can_reduce(dtype, op)) continue;
      for (const std::int64_t count :
           {std::int64_t{0}, std::int64_t{1}, n - 1, n, n + 1, std::int64_t{127}, std::int64_t{257},
            std::int64_t{1009}, std::int64_t{2053}}) {
        cases.push_back({.dtype = dtype,
                         .op = op,
                         .counts = {count},
                         .where = kPlaces[turn % 2],
                         .in_place = turn % 3 == 0});
        ++turn;
      }
    }
  }
  run_all(size(), cases);
}

/// Every rank reduces the whole of a private tensor of the first size, and only its share of one of
/// the other sizes.
TEST_P(HostAllreduceTest, EveryTypeAndOperationWhenLarge) {
  std::vector<Case> cases;
  int turn = 0;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (!can_reduce(dtype, op)) continue;
      for (const std::int64_t bytes : {10'007, 40'009, 70'001}) {
        const std::int64_t count = bytes / static_cast<std::int64_t>(size_of(dtype));
        cases.push_back({.dtype = dtype,
                         .op = op,
                         .counts = {count},
                         .where = kPlaces[turn % 2],
                         .in_place = turn % 3 == 0,
                         .shift = turn % 5 == 0 ? std::size_t{3} : std::size_t{0}});
        ++turn;
      }
    }
  }
  run_all(size(), cases);
}

TEST_P(HostAllreduceTest, SizesAroundChunksAndPowersOfTwo) {
  std::vector<Case> cases;
  for (const Where where : {Where::arena, Where::apart}) {
    for (const std::int64_t power : {512, 16'384, 65'536}) {  // f32: 2, 64 and 256 KiB
      for (const std::int64_t off : {-1, 0, 1}) {
        cases.push_back({.counts = {power + off}, .where = where, .in_place = off == 0});
      }
    }
    cases.push_back({.counts = {3 * 65'536}, .where = where});
    cases.push_back({.counts = {7 * 65'536 + 5}, .where = where, .in_place = true});
  }
  run_all(size(), cases);
}

TEST_P(HostAllreduceTest, FusedTensors) {
  std::vector<Case> cases;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::min}) {
      if (!can_reduce(dtype, op)) continue;
      for (const Where where : kPlaces) {
        const bool in_place = op == ReduceOp::sum;
        cases.push_back({dtype, op, {3, 0, 100, 1, 57}, where, in_place});
        cases.push_back({dtype, op, {3'000, 0, 7, 12'003, 1, 257, 5'001}, where, in_place});
        cases.push_back({dtype, op, {0, 0, 1}, where, in_place});
        cases.push_back({dtype, op, {0, 0}, where, in_place});
      }
    }
  }
  run_all(size(), cases);
}

TEST_P(HostAllreduceTest, ManySmallTensors) {
  std::vector<Case> cases;
  for (const Where where : kPlaces) {
    Case few{.counts = std::vector<std::int64_t>(161, 256), .where = where};
    for (std::size_t t = 0; t < few.counts.size(); ++t) few.counts[t] += static_cast<int>(t % 7);
    cases.push_back(few);
    Case many{.counts = std::vector<std::int64_t>(2500, 11), .where = where, .in_place = true};
    cases.push_back(many);
  }
  run_all(size(), cases);
}

TEST_P(HostAllreduceTest, UnalignedMemory) {
  std::vector<Case> cases;
  for (const DType dtype : kAllDTypes) {
    const ReduceOp op = dtype == DType::boolean ? ReduceOp::sum : ReduceOp::average;
    for (const Where where : kPlaces) {
      for (const std::size_t shift : {std::size_t{1}, std::size_t{2}, std::size_t{17}}) {
        cases.push_back({dtype, op, {33}, where, false, shift});
        cases.push_back({dtype, op, {3'003, 5, 2'009}, where, shift == 2, shift});
      }
    }
  }
  run_all(size(), cases);
}

TEST_P(HostAllreduceTest, ScalesBeforeAndAfter) {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::max}) {
      for (const Where where : kPlaces) {
        cases.push_back({dtype, op, {301}, where, op == ReduceOp::sum, 0, 0.5, 3.0});
        cases.push_back({dtype, op, {7, 4'001}, where, op == ReduceOp::sum, 0, 0.5, 3.0});
        cases.push_back({dtype, op, {4'001}, where, op == ReduceOp::max, 0, 1.0, 0.25});
      }
    }
  }
  run_all(size(), cases);
}

/// Returns (((x0 + x1) + x2) + …) in float. It is rounded once, when it is stored.
float in_rank_order(const std::vector<Buffer>& inputs, DType dtype, std::int64_t i) {
  auto sum = static_cast<float>(load(dtype, inputs[0].data(), i));
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    sum += static_cast<float>(load(dtype, inputs[rank].data(), i));
  }
  return sum;
}

TEST_P(HostAllreduceTest, AddsUpInRankOrderWhicheverWay) {
  const int n = size();
  expect_host_ranks(n, [n](int rank, HostEngine& engine) {
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      for (const std::int64_t count : {100, 5'003, 80'003}) {
        for (const Where where : kPlaces) {
          const Case alone{.dtype = dtype, .counts = {count}, .where = where};
          const Case fused{.dtype = dtype, .counts = {count, 4'000, 1}, .where = where};
          const Buffer result = run_case(engine, rank, alone)[0];
          EXPECT_TRUE(run_case(engine, rank, fused)[0] == result) << fused.text();
          std::vector<Buffer> inputs;
          for (int r = 0; r < n; ++r) inputs.push_back(alone.input(r, 0));
          Buffer wanted(result.size());
          for (std::int64_t i = 0; i < count; ++i) {
            store(dtype, wanted.data(), i, in_rank_order(inputs, dtype, i));
          }
          EXPECT_TRUE(result == wanted) << alone.text();
        }
      }
    }
  });
}

TEST_P(HostAllreduceTest, SpreadsNanFromAnyRankToAll) {
  expect_host_ranks(size(), [](int rank, HostEngine& engine) {
    const auto n = static_cast<std::size_t>(size());
    for (const std::int64_t count : {40, 5'000}) {
      for (const ReduceOp op : kAllOps) {
        for (const auto& arena : {engine.arena, std::shared_ptr<Arena>()}) {
          const Block block(arena, static_cast<std::size_t>(count) * sizeof(float));
          auto* const data = reinterpret_cast<float*>(block.data());
          std::fill_n(data, count, 1.0F);
          // Every rank puts NaN into elements of its own.
          for (auto i = static_cast<std::size_t>(rank); i < static_cast<std::size_t>(count);
               i += 2 * n) {
            data[i] = std::numeric_limits<float>::quiet_NaN();
          }
          const TensorSlice slice{block.data(), block.data(), count};
          engine.backend->allreduce({.tensors = {&slice, 1}, .device = {}, .op = op}, soon());
          for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
            ASSERT_EQ(std::isnan(data[i]), i % (2 * n) < n) << "element " << i << to_string(op);
          }
        }
      }
    }
  });
}

TEST_P(HostAllreduceTest, KeepsInfinitiesDenormalsAndExtremes) {
  expect_host_ranks(size(), [](int rank, HostEngine& engine) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float tiny = std::numeric_limits<float>::denorm_min();
    std::vector<float> data{rank == 0 ? infinity : 1.0F, rank == 0 ? -infinity : 1.0F, tiny};
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    const TensorSlice slice{bytes, bytes, 3};
    engine.backend->allreduce({.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum}, soon());
    EXPECT_EQ(data, (std::vector<float>{infinity, -infinity, tiny * static_cast<float>(size())}));

    constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
    std::vector<std::int64_t> numbers(5000, kLeast);
    auto* const words = reinterpret_cast<std::byte*>(numbers.data());
    const TensorSlice integers{words, words, 5000};
    engine.backend->allreduce(
        {.tensors = {&integers, 1}, .device = {}, .dtype = DType::i64, .op = ReduceOp::average},
        soon());
    EXPECT_EQ(numbers, std::vector<std::int64_t>(5000, kLeast)) << "the sum does not fit";
  });
}

/// The last of several ranks has neither input nor output, like a rank that has joined.
TEST_P(HostAllreduceTest, RanksMayHaveNothingAndWantNothing) {
  const int n = size();
  expect_host_ranks(n, [n](int rank, HostEngine& engine) {
    for (const std::vector<std::int64_t>& counts :
         {std::vector<std::int64_t>{100}, std::vector<std::int64_t>{6'000},
          std::vector<std::int64_t>{5, 4'000, 64}}) {
      for (const Where where : kPlaces) {
        const Case test{.dtype = DType::f64, .counts = counts, .where = where};
        std::vector<Block> blocks;
        std::vector<TensorSlice> slices;
        for (std::size_t t = 0; t < counts.size(); ++t) {
          const Buffer values = test.input(rank, t);
          blocks.emplace_back(test.in_arena(rank, t) ? engine.arena : nullptr, values.size());
          std::memcpy(blocks.back().data(), values.data(), values.size());
          const bool here = rank < std::max(1, n - 1);
          slices.push_back(
              {here ? blocks[t].data() : nullptr, here ? blocks[t].data() : nullptr, counts[t]});
        }
        engine.backend->allreduce({.tensors = slices,
                                   .device = {},
                                   .dtype = test.dtype,
                                   .op = ReduceOp::average,
                                   .prescale = -2.0,
                                   .contributors = std::max(1, n - 1)},
                                  soon());
        for (std::size_t t = 0; t < counts.size(); ++t) {
          if (slices[t].output == nullptr) continue;
          std::vector<Buffer> inputs;
          for (int r = 0; r < std::max(1, n - 1); ++r) inputs.push_back(test.input(r, t));
          expect_reduced({test.dtype, ReduceOp::average, -2.0, 1.0, std::max(1, n - 1)}, inputs,
                         Buffer(slices[t].output, slices[t].output + test.input(rank, t).size()));
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostAllreduceTest,
                         testing::ValuesIn(rank_counts({1, 2, 3, 4, 5, 8})),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace hvd::test
