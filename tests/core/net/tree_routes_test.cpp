#include "net/tree_routes.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using testing::ElementsAre;
using testing::IsEmpty;

TEST(TreeRoutes, AStarIsOneGroup) {
  for (const int group : {0, 5, 9}) {
    const TreeRoutes star(5, group);
    EXPECT_TRUE(star.is_star());
    EXPECT_THAT(star.children(0), ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(star.children(3), IsEmpty());
    EXPECT_EQ(star.parent(3), 0);
    EXPECT_EQ(star.towards(3, 0), 0);
    EXPECT_EQ(star.towards(0, 3), 3);
  }
  EXPECT_THAT(TreeRoutes(1, 0).children(0), IsEmpty());
}

TEST(TreeRoutes, TheFirstOfEachGroupIsItsRelay) {
  const TreeRoutes tree(8, 3);  // 0 1 2 | 3 4 5 | 6 7
  EXPECT_FALSE(tree.is_star());
  EXPECT_THAT(tree.children(0), ElementsAre(1, 2, 3, 6));
  EXPECT_THAT(tree.children(3), ElementsAre(4, 5));
  EXPECT_THAT(tree.children(6), ElementsAre(7));
  EXPECT_THAT(tree.children(1), IsEmpty());
  EXPECT_THAT(tree.children(4), IsEmpty());
  EXPECT_TRUE(tree.is_relay(3));
  EXPECT_FALSE(tree.is_relay(0) || tree.is_relay(1) || tree.is_relay(7));
  EXPECT_EQ(tree.parent(0), -1);
  EXPECT_EQ(tree.parent(2), 0);
  EXPECT_EQ(tree.parent(3), 0);
  EXPECT_EQ(tree.parent(7), 6);
}

class TreeOf : public testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, TreeOf,
                         testing::Values(std::pair(2, 2), std::pair(4, 2), std::pair(5, 2),
                                         std::pair(9, 4), std::pair(17, 16), std::pair(4096, 64)));

TEST_P(TreeOf, EveryWayLeadsThere) {
  const TreeRoutes tree(GetParam().first, GetParam().second);
  for (int rank = 1; rank < tree.size(); ++rank) {
    const int parent = tree.parent(rank);
    EXPECT_EQ(tree.towards(rank, 0), parent);
    EXPECT_EQ(tree.towards(parent, rank), rank);
    const std::vector<int> siblings = tree.children(parent);
    EXPECT_TRUE(std::binary_search(siblings.begin(), siblings.end(), rank));
    const int child = tree.towards(0, rank);
    EXPECT_EQ(tree.parent(child), 0);
    EXPECT_TRUE(child <= rank && rank < tree.end_of(child)) << rank;
    EXPECT_TRUE(child == rank || tree.towards(child, rank) == rank);
  }
}

TEST(ControlGroup, IsTheFanoutOrAllOrTheRoot) {
  EXPECT_EQ(control_group(8, 2), 2);
  EXPECT_EQ(control_group(8, 20), 8);
  EXPECT_EQ(control_group(1, 0), 1);
  EXPECT_EQ(control_group(256, 0), 256);
  EXPECT_EQ(control_group(257, 0), 17);
  EXPECT_EQ(control_group(4096, 0), 64);
  EXPECT_EQ(control_group(4097, 0), 65);
}

}  // namespace
}  // namespace hvd
