#include "net/tree_routes.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using testing::ElementsAre;
using testing::IsEmpty;

TEST(TreeRoutes, AStarHasOneLevel) {
  for (const int fanout : {0, 4, 9}) {
    const TreeRoutes star(5, fanout);
    EXPECT_THAT(star.children(0), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(star.children(3), IsEmpty());
    EXPECT_EQ(star.parent(3), 0);
    EXPECT_EQ(star.towards(3, 0), 0);
    EXPECT_EQ(star.towards(0, 3), 3);
  }
  EXPECT_THAT(TreeRoutes(5, std::numeric_limits<int>::max()).children(0), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(TreeRoutes(1, 0).children(0), IsEmpty());
  EXPECT_EQ(TreeRoutes(256, 0).children(0).size(), 255U);
}

TEST(TreeRoutes, TheFirstOfEachBlockIsItsRelay) {
  const TreeRoutes tree(8, 3);  // 0 (1 (2 3) 4 (5 6) 7)
  EXPECT_THAT(tree.children(0), ElementsAre(1, 4, 7));
  EXPECT_THAT(tree.children(1), ElementsAre(2, 3));
  EXPECT_THAT(tree.children(4), ElementsAre(5, 6));
  EXPECT_THAT(tree.children(7), IsEmpty());
  EXPECT_THAT(tree.children(2), IsEmpty());
  EXPECT_TRUE(tree.is_relay(1));
  EXPECT_FALSE(tree.is_relay(0) || tree.is_relay(2) || tree.is_relay(7));
  EXPECT_EQ(tree.parent(0), -1);
  EXPECT_EQ(tree.parent(4), 0);
  EXPECT_EQ(tree.parent(6), 4);
}

TEST(TreeRoutes, RelaysMayBeBelowRelays) {
  const TreeRoutes tree(8, 2);  // 0 (1 (2 (3) 4) 5 (6 7))
  EXPECT_THAT(tree.children(0), ElementsAre(1, 5));
  EXPECT_THAT(tree.children(1), ElementsAre(2, 4));
  EXPECT_THAT(tree.children(2), ElementsAre(3));
  EXPECT_THAT(tree.children(5), ElementsAre(6, 7));
  EXPECT_TRUE(tree.is_relay(1) && tree.is_relay(2) && tree.is_relay(5));
  EXPECT_EQ(tree.parent(3), 2);
  EXPECT_EQ(tree.parent(2), 1);
  EXPECT_EQ(tree.end_of(1), 5);
  EXPECT_EQ(tree.end_of(2), 4);
  EXPECT_EQ(tree.end_of(3), 4);
  EXPECT_EQ(tree.towards(0, 3), 1);
  EXPECT_EQ(tree.towards(1, 3), 2);
  EXPECT_EQ(tree.towards(2, 7), 1);
}

class TreeOf : public testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, TreeOf,
                         testing::Values(std::pair(2, 2), std::pair(4, 2), std::pair(5, 2),
                                         std::pair(9, 4), std::pair(17, 16), std::pair(30, 3),
                                         std::pair(257, 0), std::pair(4096, 0),
                                         std::pair(131'072, 0)));

TEST_P(TreeOf, EveryWayLeadsThere) {
  const auto [size, fanout] = GetParam();
  const TreeRoutes tree(size, fanout);
  std::vector<int> seen(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<int> children = tree.children(rank);
    EXPECT_LE(children.size(), static_cast<std::size_t>(fanout > 0 ? fanout : 80));
    int end = rank + 1;  // the ranks below the children are all those below this one
    for (const int child : children) {
      ASSERT_EQ(child, end);
      ASSERT_EQ(tree.parent(child), rank);
      ASSERT_EQ(tree.towards(child, 0), rank);
      end = tree.end_of(child);
      for (const int below : {child, end - 1}) ASSERT_EQ(tree.towards(rank, below), child);
      ++seen[static_cast<std::size_t>(child)];
    }
    ASSERT_EQ(tree.end_of(rank), end);
  }
  EXPECT_THAT(std::vector(seen.begin() + 1, seen.end()), testing::Each(1));
}

TEST(TreeRoutes, LargeJobsHaveThreeLevels) {
  for (const auto& [size, levels] :
       {std::pair(257, 2), std::pair(1864, 2), std::pair(1865, 3), std::pair(149'064, 3)}) {
    const TreeRoutes tree(size, 0);
    EXPECT_LE(tree.children(0).size(), 23U);
    int deepest = 0;
    for (int rank = 1; rank < size; ++rank) {
      int level = 0;
      for (int at = rank; at != 0; at = tree.parent(at)) ++level;
      deepest = std::max(deepest, level);
    }
    EXPECT_EQ(deepest, levels) << size;
  }
}

}  // namespace
}  // namespace hvd
