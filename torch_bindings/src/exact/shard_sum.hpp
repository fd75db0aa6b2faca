// Adds the rows of shards in an order that does not depend on which rank has which shard.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include <hvd/core/context.hpp>

namespace hvd::detail {

/// The shards of a rank: from `begin` to `end`, without `end`.
struct ShardNumbers {
  int begin = 0;
  int end = 0;
};

/// Divides `shards` among `ranks`, as evenly as possible. Some ranks have none when there are more
/// ranks than shards.
[[nodiscard]] ShardNumbers shards_of_rank(int shards, int rank, int ranks);

/// Adds rows as the leaves of a binary tree (pairwise summation): shard 0 + shard 1, shard 2 +
/// shard 3, then these sums. A row holds all gradients of one shard. A rank with neighbouring
/// shards can add those that have a common node, so it keeps and sends at most about two rows for
/// each level of the tree.
class ShardSum {
 public:
  /// The sum of the shards from `begin` on. Their number is a power of two, of which `begin` is a
  /// multiple.
  struct Block {
    int begin = 0;
    int size = 1;
    torch::Tensor row;  ///< undefined if only sizes are computed
  };

  /// Adds the next block, which follows those before. May overwrite its row.
  void add(Block block);
  /// Returns what the blocks of all ranks add up to, on every rank. Each rank adds a slice of the
  /// elements. `like` has the length and dtype of a row. Collective.
  [[nodiscard]] torch::Tensor over_ranks(int shards, const torch::Tensor& like,
                                         const std::string& name, Context& context) &&;

  [[nodiscard]] const std::vector<Block>& blocks() const noexcept { return blocks_; }

 private:
  [[nodiscard]] torch::Tensor total() &&;

  std::vector<Block> blocks_;
};

}  // namespace hvd::detail
