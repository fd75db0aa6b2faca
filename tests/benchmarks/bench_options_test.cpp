// hvd_bench's command line and its small formulas.
#include <initializer_list>
#include <vector>

#include <gtest/gtest.h>

#include "collective.hpp"
#include "measure.hpp"
#include "options.hpp"

namespace hvd::bench {
namespace {

Options parse(std::initializer_list<const char*> arguments) {
  std::vector<const char*> argv{"hvd_bench"};
  argv.insert(argv.end(), arguments);
  return parse_command_line(static_cast<int>(argv.size()), argv.data()).options;
}

TEST(BenchOptions, SizesHaveSuffixes) {
  EXPECT_EQ(parse_size("4"), 4U);
  EXPECT_EQ(parse_size("4B"), 4U);
  EXPECT_EQ(parse_size("3k"), 3072U);
  EXPECT_EQ(parse_size("256M"), std::size_t{256} << 20);
  EXPECT_EQ(parse_size("2GiB"), std::size_t{2} << 30);
}

TEST(BenchOptions, WhatIsNoSizeIsRefused) {
  for (const char* text : {"", "0", "-4", "4X", "4KK", "M", "1.5M", "4 M", "99999999999G"}) {
    EXPECT_THROW(static_cast<void>(parse_size(text)), UsageError) << "'" << text << "'";
  }
}

TEST(BenchOptions, AreReadAsNcclTestsSpellsThem) {
  const Options options =
      parse({"allreduce", "-b", "8", "-e", "1M", "-f", "2", "--dtype", "bf16", "--op", "max",
             "--iters", "7", "--warmup", "0", "--no-check", "--json", "out.json"});
  EXPECT_EQ(options.kind, OpKind::allreduce);
  EXPECT_EQ(options.begin, 8U);
  EXPECT_EQ(options.end, std::size_t{1} << 20);
  EXPECT_EQ(options.factor, 2U);
  EXPECT_EQ(options.dtype, DType::bf16);
  EXPECT_EQ(options.op, ReduceOp::max);
  EXPECT_EQ(options.iterations, 7);
  EXPECT_EQ(options.warmup, 0);
  EXPECT_FALSE(options.check);
  EXPECT_EQ(options.json, "out.json");
  EXPECT_TRUE(parse({"barrier", "--check"}).check);
  EXPECT_FALSE(options.arena);
  EXPECT_TRUE(parse({"allreduce", "--arena"}).arena);
  EXPECT_FALSE(parse({"allreduce", "--private"}).arena);
  EXPECT_TRUE(parse({"sendrecv"}).sendrecv);
  EXPECT_EQ(operation_of(parse({"sendrecv"})), "sendrecv");
  EXPECT_FALSE(options.cuda);
  EXPECT_TRUE(parse({"broadcast", "--device", "cuda"}).cuda);
  EXPECT_FALSE(parse({"allgather", "--device", "cpu"}).cuda);
  EXPECT_FALSE(options.engine);
  EXPECT_TRUE(parse({"allreduce", "--engine"}).engine);
  EXPECT_EQ(parse({"reducescatter"}).kind, OpKind::reducescatter);
  EXPECT_EQ(parse({"alltoall"}).kind, OpKind::alltoall);
  EXPECT_FALSE(options.negotiation);
  EXPECT_TRUE(parse({"negotiation"}).negotiation);
  EXPECT_TRUE(parse({"startup", "--load-only"}).load_only);
}

TEST(BenchOptions, WhatMakesNoSenseIsRefused) {
  EXPECT_THROW(parse({}), UsageError);
  EXPECT_THROW(parse({"scatter"}), UsageError);
  EXPECT_THROW(parse({"broadcast", "--engine"}), UsageError);
  EXPECT_THROW(parse({"sendrecv", "--engine"}), UsageError);
  EXPECT_THROW(parse({"join"}), UsageError);
  for (const char* other : {"allgather", "reducescatter", "alltoall", "sendrecv", "barrier",
                            "negotiation", "startup"}) {
    EXPECT_THROW(parse({other, "--device", "cuda"}), UsageError) << other;
  }
  EXPECT_THROW(parse({"allreduce", "--device", "cuda", "--arena"}), UsageError);
  EXPECT_THROW(parse({"allreduce", "--device", "cuda", "--engine"}), UsageError);
  EXPECT_THROW(parse({"allreduce", "--device", "tpu"}), UsageError);
  EXPECT_THROW(parse({"allreduce", "-f", "1"}), UsageError);
  EXPECT_THROW(parse({"allreduce", "-b", "8", "-e", "4"}), UsageError);
  EXPECT_THROW(parse({"allreduce", "--op", "mean"}), UsageError);
  EXPECT_THROW(parse({"allreduce", "--dtype", "float"}), UsageError);
  EXPECT_THROW(parse({"allreduce", "--dtype", "c64"}), UsageError);
  EXPECT_THROW(parse({"allreduce", "--op", "average", "--dtype", "bool"}), UsageError);
  EXPECT_THROW(parse({"allreduce", "--iters", "-1"}), UsageError);
  EXPECT_THROW(parse({"allreduce", "--unknown"}), UsageError);
}

TEST(BenchExtent, IsWholeElementsForEveryRank) {
  Options options = parse({"allreduce", "--dtype", "f64"});
  EXPECT_EQ(extent_of(options, 4, 3).bytes, 8U) << "never less than an element";
  EXPECT_EQ(extent_of(options, 100, 3).count, 12);
  options = parse({"allgather", "--dtype", "f32"});
  EXPECT_EQ(extent_of(options, 4, 3).bytes, 12U);
  EXPECT_EQ(extent_of(options, 64, 3).count, 5);
  EXPECT_EQ(extent_of(options, 64, 3).bytes, 60U);
  options = parse({"alltoall", "--dtype", "f32"});
  EXPECT_EQ(extent_of(options, 64, 3).count, 15) << "the same for every rank";
  options = parse({"reducescatter", "--dtype", "f32"});
  EXPECT_EQ(extent_of(options, 64, 3).count, 16) << "parts may differ by one";
}

TEST(BenchFactor, IsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(OpKind::allreduce, 2), 1.0);
  EXPECT_DOUBLE_EQ(bus_factor(OpKind::allreduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(OpKind::allgather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(OpKind::reducescatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(OpKind::alltoall, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(OpKind::broadcast, 4), 1.0);
}

TEST(BenchPercentile, IsTheNearestRank) {
  const std::vector<double> sorted{1, 2, 3, 4};
  EXPECT_EQ(percentile(sorted, 0.50), 2);
  EXPECT_EQ(percentile(sorted, 0.51), 3);
  EXPECT_EQ(percentile(sorted, 0.99), 4);
  EXPECT_EQ(percentile({7}, 0.5), 7);
}

}  // namespace
}  // namespace hvd::bench
