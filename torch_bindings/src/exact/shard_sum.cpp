#include "exact/shard_sum.hpp"

#include <utility>

#include <hvd/torch/collectives.hpp>

namespace hvd::detail {

ShardNumbers shards_of_rank(int shards, int rank, int ranks) {
  const auto begin_of = [&](std::int64_t r) { return static_cast<int>(shards * r / ranks); };
  return {begin_of(rank), begin_of(rank + 1)};
}

void ShardSum::add(Block block) {
  while (!blocks_.empty() && blocks_.back().size == block.size &&
         blocks_.back().begin % (2 * block.size) == 0) {
    Block left = std::move(blocks_.back());
    blocks_.pop_back();
    if (left.row.defined()) left.row.add_(block.row);
    block = {left.begin, 2 * left.size, std::move(left.row)};
  }
  blocks_.push_back(std::move(block));
}

/// Where the number of shards is not a power of two, the right side of the tree has gaps.
torch::Tensor ShardSum::total() && {
  while (blocks_.size() > 1) {
    const torch::Tensor right = blocks_.back().row;
    blocks_.pop_back();
    blocks_.back().row.add_(right);
  }
  return std::move(blocks_.front().row);
}

torch::Tensor ShardSum::over_ranks(int shards, const torch::Tensor& like, const std::string& name,
                                   Context& context) && {
  const int ranks = context.size();
  const auto slice_begin = [&](int rank) { return like.numel() * rank / ranks; };
  const auto slice_length = [&](int rank) { return slice_begin(rank + 1) - slice_begin(rank); };
  std::vector<torch::Tensor> pieces{like.narrow(0, 0, 0)};
  std::vector<std::int64_t> splits;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Block& block : blocks_) {
      pieces.push_back(block.row.narrow(0, slice_begin(rank), slice_length(rank)));
    }
    splits.push_back(std::ssize(blocks_) * slice_length(rank));
  }
  const torch::Tensor sent = torch::cat(pieces);
  blocks_.clear();
  const torch::Tensor received =
      alltoall(sent, splits, {.name = name + "/slices", .context = &context}).output;
  ShardSum sum;
  const std::int64_t length = slice_length(context.rank());
  std::int64_t at = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const ShardNumbers range = shards_of_rank(shards, rank, ranks);
    ShardSum sizes;
    for (int shard = range.begin; shard < range.end; ++shard) sizes.add({shard, 1, {}});
    for (const Block& block : sizes.blocks()) {
      sum.add({block.begin, block.size, received.narrow(0, at, length)});
      at += length;
    }
  }
  return allgather(std::move(sum).total(), {.name = name + "/sum", .context = &context});
}

}  // namespace hvd::detail
