#include <algorithm>

#include <gtest/gtest.h>

#include <hvd/core/version.hpp>

namespace {

TEST(Version, HasThreeNumbers) {
  const auto text = hvd::version();
  EXPECT_EQ(std::count(text.begin(), text.end(), '.'), 2) << text;
}

}  // namespace
