// Tests which rank reads which rows: every row once, in equal shares, with the same steps on all
// ranks.
#include "table/share_plan.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include <gmock/gmock.h>

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test

using testing::ElementsAre;
using testing::IsEmpty;

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

const std::vector<std::vector<std::int64_t>> kGroups = {
    {}, {0}, {1}, {7}, {0, 0, 3}, {5, 0, 5, 1}, {10, 10, 10}, {1, 1, 1, 1, 1, 1, 1}, {1000, 1, 37}};

TEST(SharePlan, GivesEveryRowToOneRank) {
  for (const auto& chosen : kGroups) {
    for (const int size : {1, 2, 3, 4, 5, 8}) {
      const auto order = group_order(chosen.size(), /*shuffled=*/true, 5, 2);
      std::set<std::pair<std::size_t, std::int64_t>> seen;
      for (int rank = 0; rank < size; ++rank) {
        std::int64_t rows = 0;
        for (const GroupSlice& slice : share_of_rank(order, chosen, rank, size)) {
          EXPECT_GT(slice.count, 0);
          rows += slice.count;
          for (std::int64_t row = slice.first; row < slice.first + slice.count; ++row) {
            EXPECT_LT(row, chosen[slice.group]);
            EXPECT_TRUE(seen.emplace(slice.group, row).second) << "twice";
          }
        }
        EXPECT_EQ(rows, rows_of_rank(sum(chosen), rank, size));
        EXPECT_LE(rows_of_rank(sum(chosen), 0, size) - rows, 1);
      }
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), sum(chosen));
    }
  }
}

TEST(SharePlan, HasTheRowsOfAllRanksInItsSteps) {
  for (const std::int64_t rows : {0, 1, 2, 5, 16, 17, 100}) {
    for (const int size : {1, 2, 3, 8}) {
      for (const std::int64_t batch : {1, 4, 32}) {
        const std::int64_t steps = steps_of(rows, size, batch);
        std::int64_t all = 0;
        for (std::int64_t step = 0; step < steps; ++step) {
          std::int64_t expected = 0;
          for (int rank = 0; rank < size; ++rank) {
            const std::int64_t of_rank = rows_of_rank(rows, rank, size);
            const std::int64_t some =
                rows_before(step + 1, of_rank, steps) - rows_before(step, of_rank, steps);
            EXPECT_GE(some, of_rank / steps);
            EXPECT_LE(some, of_rank / steps + 1);
            EXPECT_LE(some, batch);
            expected += some;
            EXPECT_EQ(some > 0 || step > 0, of_rank > 0 || step > 0);
            EXPECT_EQ(rows_before(steps, of_rank, steps), of_rank);
          }
          EXPECT_EQ(rows_of_step(rows, size, batch, step), expected);
          EXPECT_GT(expected, 0);
          all += expected;
        }
        EXPECT_EQ(all, rows);
      }
    }
  }
}

TEST(SharePlan, FollowsTheOrderOfTheGroups) {
  const std::vector<std::int64_t> chosen = {4, 2, 3};
  const std::vector<std::size_t> order = {2, 0, 1};
  EXPECT_THAT(share_of_rank(order, chosen, 0, 2),
              ElementsAre(GroupSlice{2, 0, 3}, GroupSlice{0, 0, 2}));
  EXPECT_THAT(share_of_rank(order, chosen, 1, 2),
              ElementsAre(GroupSlice{0, 2, 2}, GroupSlice{1, 0, 2}));
  EXPECT_THAT(share_of_rank(order, std::vector<std::int64_t>{1, 0, 0}, 1, 2), IsEmpty());
}

TEST(SharePlan, ShufflesGroupsByEpochAlone) {
  const auto first = group_order(50, true, 1, 0);
  EXPECT_EQ(first, group_order(50, true, 1, 0));
  EXPECT_NE(first, group_order(50, true, 1, 1));
  EXPECT_NE(first, group_order(50, true, 2, 0));
  EXPECT_THAT(group_order(3, false, 1, 1), ElementsAre(0, 1, 2));
}

TEST(SharePlan, MixesSeedAndRowSoThatAShareIsHit) {
  for (const std::uint64_t seed : {0u, 1u, 77u}) {
    int below = 0;
    for (std::uint64_t row = 0; row < 20000; ++row) below += (mixed(seed, row) >> 63) == 0 ? 1 : 0;
    EXPECT_NEAR(below, 10000, 400);
  }
  EXPECT_NE(mixed(0, 1), mixed(1, 0));
}

}  // namespace
}  // namespace hvd
