#include "scale.hpp"

#include <numeric>

#include <gtest/gtest.h>

#include "resnet50.hpp"

namespace hvd::sim {
namespace {

TEST(ResNet50, HasItsParameters) {
  const std::vector<Request> gradients = resnet50_gradients();
  EXPECT_EQ(gradients.size(), 161U);
  std::int64_t parameters = 0;
  for (const Request& request : gradients) parameters += element_count(request.shape);
  EXPECT_EQ(parameters, 25'557'032);
}

TEST(Scale, AFrozenStepCostsNothing) {
  const ScaleRow row = measure_scale({64, 0, 16, 3});
  EXPECT_EQ(row.steps_until_freeze, 3);
  EXPECT_EQ(row.per_frozen_step.messages_in + row.per_frozen_step.messages_out, 0U);
  EXPECT_GT(row.until_freeze.messages_in, 0U);
}

TEST(Scale, TheCostUntilTheFreezeGrowsWithTheRanks) {
  const ScaleRow few = measure_scale({8, 0, 161, 2});
  const ScaleRow many = measure_scale({64, 0, 161, 2});
  EXPECT_EQ(few.until_freeze.messages_in / 7, many.until_freeze.messages_in / 63);
  EXPECT_EQ(few.follower.messages_in, many.follower.messages_in);
}

TEST(Scale, ATreeSparesRank0) {
  const ScaleRow star = measure_scale({64, 0, 161, 2});
  const ScaleRow tree = measure_scale({64, 8, 161, 2});
  EXPECT_EQ(tree.steps_until_freeze, star.steps_until_freeze);
  EXPECT_EQ(tree.per_frozen_step.messages_in + tree.per_frozen_step.messages_out, 0U);
  // Rank 0 sends to 8 relays instead of 63 ranks.
  EXPECT_EQ(star.until_freeze.messages_out / 63, tree.until_freeze.messages_out / 8);
  EXPECT_EQ(star.until_freeze.messages_in / 63, tree.until_freeze.messages_in / 8);
  EXPECT_EQ(star.per_second.messages_in, 630U);
  EXPECT_EQ(tree.per_second.messages_in, 80U);
  EXPECT_EQ(tree.relay_per_second.messages_in, 80U);
}

TEST(Scale, WithThreeLevelsRank0HearsEveryMessageOnceFromEachChild) {
  const ScaleRow row = measure_scale({250, 6, 161, 3});
  EXPECT_EQ(row.levels, 3);
  EXPECT_EQ(row.children, 6);
  EXPECT_EQ(row.until_freeze.messages_in, 3U * 6U);
  // Rank 0 of 131,072 ranks has 23 children: at most 1 MiB for all of them.
  EXPECT_LE(row.until_freeze.bytes_in / 6 * 23, std::uint64_t{1} << 20);
  EXPECT_LE(row.per_second.messages_in + row.per_second.messages_out, 2U * 6U * 10U);
  EXPECT_EQ(row.per_frozen_step.messages_in + row.per_frozen_step.messages_out, 0U);
}

TEST(Scale, WhatIsNotMergedCostsRank0AsMuchAsAStarDoes) {
  const ScaleRow star = measure_scale({64, 0, 161, 2});
  const ScaleRow tree = measure_scale({64, 8, 161, 2, false});
  EXPECT_EQ(tree.until_freeze.messages_in, star.until_freeze.messages_in);
}

TEST(Scale, TheTableAndTheJsonNameEveryRow) {
  const std::vector<ScaleRow> rows{measure_scale({2, 0, 161, 1}), measure_scale({3, 0, 161, 1})};
  EXPECT_NE(scale_json(rows).find(R"("ranks":3)"), std::string::npos);
  EXPECT_NE(scale_table(rows).find("161"), std::string::npos);
}

}  // namespace
}  // namespace hvd::sim
