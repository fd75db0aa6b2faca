// Collectives on plain memory, through a whole context.
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include <hvd/hvd.hpp>

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

TEST_P(HostCollectives, AllreduceInPlaceAndOutOfPlace) {
  on_contexts([](Context& context) {
    const int n = context.size();
    std::vector<float> data(1000, static_cast<float>(context.rank() + 1));
    allreduce<float>(context, data);
    EXPECT_EQ(data, std::vector<float>(1000, static_cast<float>(n + 1) / 2));

    const std::vector<std::int64_t> ones(10, 1);
    std::vector<std::int64_t> sums(10);
    allreduce_async(context, ones.data(), sums.data(), 10, DType::i64,
                    {.name = "sums", .op = ReduceOp::sum, .prescale = 2.0, .postscale = 3.0})
        .wait();
    EXPECT_EQ(sums, std::vector<std::int64_t>(10, 6 * n));
    EXPECT_EQ(ones, std::vector<std::int64_t>(10, 1));
  });
}

TEST_P(HostCollectives, BroadcastFromTheLastRank) {
  on_contexts([](Context& context) {
    std::vector<double> data(100, context.rank());
    broadcast_async(context, data.data(), 100, DType::f64, context.size() - 1).wait();
    EXPECT_EQ(data, std::vector<double>(100, context.size() - 1));
  });
}

TEST_P(HostCollectives, AllgatherOfDifferentCounts) {
  on_contexts([](Context& context) {
    const std::vector<std::uint8_t> own(static_cast<std::size_t>(context.rank()),
                                        static_cast<std::uint8_t>(context.rank()));
    Bytes all;
    allgather_async(context, own.data(), context.rank(), DType::u8, all).wait();
    Bytes wanted;
    for (int rank = 0; rank < context.size(); ++rank) {
      wanted.insert(wanted.end(), static_cast<std::size_t>(rank), std::byte(rank));
    }
    EXPECT_EQ(all, wanted);
    barrier(context);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostCollectives, testing::Values(1, 2, 3, 4),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace hvd::test
