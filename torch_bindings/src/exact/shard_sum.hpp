// Adds the gradients of shards in an order that does not depend on which rank has which shard.
#pragma once

#include <cstdint>
#include <functional>
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
/// shard 3, then these sums. A rank with neighbouring shards can add those that have a common node,
/// so it keeps and sends at most about two rows for each level of the tree.
class ShardSum {
 public:
  /// The sum of the shards from `begin` on. Their number is a power of two, of which `begin` is a
  /// multiple.
  struct Block {
    int begin = 0;
    int size = 1;
    torch::Tensor row;  ///< undefined if only sizes are computed
  };

  /// Returns the block to which a block of this size, if it comes next, is added, or null.
  [[nodiscard]] const Block* left_of(int size) const noexcept;
  /// Adds the next block, which follows those before. May overwrite its row. A block without a row
  /// has been added to `left_of` already.
  void add(Block block);
  /// Returns the sum of all blocks, in the row of the first one.
  [[nodiscard]] torch::Tensor total() &&;

  [[nodiscard]] const std::vector<Block>& blocks() const noexcept { return blocks_; }

 private:
  std::vector<Block> blocks_;
};

/// The gradients of this rank's shards, of one dtype, and their sum over all ranks. Keeps its
/// memory from step to step.
class ShardRows {
 public:
  /// Returns an uninitialised row of so many elements.
  using EmptyRow = std::function<torch::Tensor(std::int64_t)>;

  /// The elements of a row are those of the parameters, one after the other.
  ShardRows(std::vector<torch::Tensor> parameters, EmptyRow empty_row);

  /// Forgets the shards. Their sum may be overwritten from now on.
  void begin() { sum_ = {}; }
  /// Adds the gradients that the parameters have in the next shard. A missing one counts as zeros.
  void add(int shard);
  /// Returns what the shards of all ranks add up to, on every rank. Each rank adds a slice of the
  /// elements. Collective.
  [[nodiscard]] torch::Tensor over_ranks(int shards, const std::string& name, Context& context);

  [[nodiscard]] const std::vector<torch::Tensor>& parameters() const noexcept {
    return parameters_;
  }

 private:
  const torch::Tensor& row(std::size_t index);
  [[nodiscard]] torch::Tensor slice_over_ranks(int shards, const std::string& name,
                                               Context& context);

  std::vector<torch::Tensor> parameters_;
  EmptyRow empty_row_;
  std::int64_t length_ = 0;
  ShardSum sum_;
  std::vector<torch::Tensor> rows_;  ///< those of the blocks of `sum_`, and rows that are unused
  torch::Tensor received_;           ///< this rank's slices of the blocks of all ranks
};

}  // namespace hvd::detail
