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
  const ScaleRow row = measure_scale(64, 16, 3);
  EXPECT_EQ(row.steps_until_freeze, 3);
  EXPECT_EQ(row.per_frozen_step.messages_in + row.per_frozen_step.messages_out, 0U);
  EXPECT_GT(row.until_freeze.messages_in, 0U);
}

TEST(Scale, TheCostUntilTheFreezeGrowsWithTheRanks) {
  const ScaleRow few = measure_scale(8, 161, 2);
  const ScaleRow many = measure_scale(64, 161, 2);
  EXPECT_EQ(few.until_freeze.messages_in / 7, many.until_freeze.messages_in / 63);
  EXPECT_EQ(few.follower.messages_in, many.follower.messages_in);
}

TEST(Scale, TheTableAndTheJsonNameEveryRow) {
  const std::vector<ScaleRow> rows{measure_scale(2, 161, 1), measure_scale(3, 161, 1)};
  EXPECT_NE(scale_json(rows).find(R"("ranks":3)"), std::string::npos);
  EXPECT_NE(scale_table(rows).find("161"), std::string::npos);
}

}  // namespace
}  // namespace hvd::sim
