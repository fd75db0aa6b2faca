// Tests the measurements of hvd_bench with ranks as threads, and its output.
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <nlohmann/json.hpp>
#include <stdlib.h>

#include "measure.hpp"
#include "report.hpp"

namespace hvd::bench {
namespace {

Options quick(OpKind kind, DType dtype, ReduceOp op) {
  Options options;
  options.kind = kind;
  options.dtype = dtype;
  options.op = op;
  options.iterations = 3;
  options.warmup = 1;
  return options;
}

/// Returns the rows of all ranks.
std::vector<Row> measure_all(int ranks, const Options& options, std::size_t bytes) {
  const std::shared_ptr<Store> store = make_hash_store();
  std::vector<Row> rows(static_cast<std::size_t>(ranks));
  test::expect_threads(ranks, [&](int rank) {
    const auto context = make_context(test::thread_config(rank, ranks), store);
    rows[static_cast<std::size_t>(rank)] =
        measure(*context, options, extent_of(options, bytes, ranks));
    context->shutdown();
  });
  return rows;
}

TEST(BenchMeasure, EveryCollectiveIsRightAndRanksAgree) {
  for (const OpKind kind : {OpKind::allreduce, OpKind::allgather, OpKind::broadcast,
                            OpKind::reducescatter, OpKind::alltoall, OpKind::barrier}) {
    SCOPED_TRACE(to_string(kind));
    const auto rows = measure_all(3, quick(kind, DType::f32, ReduceOp::sum), 1000);
    for (const Row& row : rows) {
      EXPECT_EQ(row.wrong, 0);
      EXPECT_EQ(row.iterations, 3);
      EXPECT_GT(row.min_us, 0);
      EXPECT_LE(row.min_us, row.p50_us);
      EXPECT_LE(row.p50_us, row.p99_us);
      EXPECT_EQ(row.p50_us, rows.front().p50_us);
    }
  }
}

TEST(BenchMeasure, EveryTypeAndOpIsCheckedRightly) {
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(2, [&](int rank) {
    const auto context = make_context(test::thread_config(rank, 2), store);
    for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
      if (is_complex(static_cast<DType>(dtype))) continue;  // `--dtype` has no complex types
      for (int op = 0; op < kReduceOpCount; ++op) {
        const Options options =
            quick(OpKind::allreduce, static_cast<DType>(dtype), static_cast<ReduceOp>(op));
        if (options.dtype == DType::boolean && options.op == ReduceOp::average) continue;
        const auto collective = make_collective(*context, options, extent_of(options, 200, 2));
        EXPECT_EQ(collective->check(), 0)
            << to_string(options.dtype) << " " << to_string(options.op) << " on rank " << rank;
      }
    }
    context->shutdown();
  });
}

TEST(BenchMeasure, AWrongResultIsCounted) {
  // Rank 1 takes part in the sum with a hand-made operation, so that ranks ask for different data.
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(2, [&](int rank) {
    const auto context = make_context(test::thread_config(rank, 2), store);
    const Options options = quick(OpKind::allreduce, DType::f32, ReduceOp::sum);
    if (rank == 0) {
      const auto collective = make_collective(*context, options, extent_of(options, 400, 2));
      EXPECT_EQ(collective->check(), 100);
    } else {
      std::vector<float> data(100, 50.0F);
      allreduce(std::span<float>(data),
                {.name = "hvd_bench", .op = ReduceOp::sum, .context = context.get()});
    }
    context->shutdown();
  });
}

TEST(BenchReport, TheJsonHasExactlyTheKeysThatAreDocumented) {
  std::string pattern = (std::filesystem::temp_directory_path() / "hvd-bench-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const std::string path = pattern + "/rows.json";
  const Setting setting{quick(OpKind::allreduce, DType::f32, ReduceOp::sum), "native", 4};
  JsonFile(path).write(setting,
                       {{{4000, 1000}, 1.0, 2.0, 3.0, 0, 5}, {{8000, 2000}, 2, 4, 5, 1, 5}});

  std::ifstream file(path);
  const nlohmann::json rows = nlohmann::json::parse(file);
  std::filesystem::remove_all(pattern);
  ASSERT_EQ(rows.size(), 2U);
  std::set<std::string> keys;
  for (const auto& item : rows[0].items()) keys.insert(item.key());
  EXPECT_EQ(keys,
            (std::set<std::string>{"op", "bytes", "count", "dtype", "redop", "backend", "ranks",
                                   "p50_us", "p99_us", "algbw_gbs", "busbw_gbs", "wrong"}));
  EXPECT_DOUBLE_EQ(rows[0]["algbw_gbs"], 2.0);
  EXPECT_DOUBLE_EQ(rows[0]["busbw_gbs"], 3.0);
  EXPECT_EQ(rows[1]["wrong"], 1);
}

TEST(BenchReport, AFileThatCannotBeWrittenIsKnownAtOnce) {
  EXPECT_THROW(JsonFile("/nonexistent/rows.json"), std::runtime_error);
}

}  // namespace
}  // namespace hvd::bench
