// Tests more than 2^31 elements, which MPI cannot count, over MPI; runs under mpirun with two
// ranks.
#include <gtest/gtest.h>

#include "mpi_ways.hpp"
#include "support/large.hpp"

namespace hvd::test {
namespace {

class MpiLargeCounts : public testing::TestWithParam<Way> {
 protected:
  static void expect_right(std::int64_t (LargeChecks::*check)() const) {
    const auto backend = make_backend(GetParam());
    const LargeChecks checks{*backend, DType::u8, world_rank(), world_size()};
    EXPECT_EQ((checks.*check)(), 0) << "wrong elements on rank " << world_rank();
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, MpiLargeCounts, testing::Values(Way::collective, Way::ring),
                         [](const auto& way) { return to_string(way.param); });
TEST_P(MpiLargeCounts, Allreduce) { expect_right(&LargeChecks::allreduce); }

/// The other operations of the ring are tested over other transports.
class MpiCollectiveLargeCounts : public MpiLargeCounts {};
INSTANTIATE_TEST_SUITE_P(Ways, MpiCollectiveLargeCounts, testing::Values(Way::collective),
                         [](const auto& way) { return to_string(way.param); });
TEST_P(MpiCollectiveLargeCounts, Broadcast) { expect_right(&LargeChecks::broadcast); }
TEST_P(MpiCollectiveLargeCounts, Allgather) { expect_right(&LargeChecks::allgather); }
TEST_P(MpiCollectiveLargeCounts, Reducescatter) { expect_right(&LargeChecks::reducescatter); }
TEST_P(MpiCollectiveLargeCounts, Alltoall) { expect_right(&LargeChecks::alltoall); }

}  // namespace
}  // namespace hvd::test
