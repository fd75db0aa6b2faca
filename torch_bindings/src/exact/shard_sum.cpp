#include "exact/shard_sum.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <hvd/hvd.hpp>

#include "collectives/tensor_traits.hpp"

namespace hvd::detail {
namespace {

/// Runs an allgather or an alltoall whose result has memory already.
void run_into(const torch::Tensor& output, OpKind kind, std::string name,
              std::vector<std::int64_t> splits, const torch::Tensor& input, Context& context) {
  Submission submission;
  submission.request.name = std::move(name);
  submission.request.kind = kind;
  submission.request.dtype = dtype_of(input);
  submission.request.device = engine_device_of(input);
  submission.request.shape = {input.numel()};
  submission.request.splits = std::move(splits);
  submission.input = data_of(input);
  submission.allocate = [output](const Shape&) { return data_of(output); };
  submission.keep_alive = std::make_shared<torch::Tensor>(input);
  context.run(std::move(submission));
}

}  // namespace

ShardNumbers shards_of_rank(int shards, int rank, int ranks) {
  const auto begin_of = [&](std::int64_t r) { return static_cast<int>(shards * r / ranks); };
  return {begin_of(rank), begin_of(rank + 1)};
}

const ShardSum::Block* ShardSum::left_of(int size) const noexcept {
  if (blocks_.empty()) return nullptr;
  const Block& last = blocks_.back();
  return last.size == size && last.begin % (2 * size) == 0 ? &last : nullptr;
}

void ShardSum::add(Block block) {
  while (left_of(block.size) != nullptr) {
    Block left = std::move(blocks_.back());
    blocks_.pop_back();
    if (block.row.defined()) left.row.add_(block.row);
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

ShardRows::ShardRows(std::vector<torch::Tensor> parameters, EmptyRow empty_row)
    : parameters_(std::move(parameters)), empty_row_(std::move(empty_row)) {
  for (const torch::Tensor& parameter : parameters_) length_ += parameter.numel();
}

const torch::Tensor& ShardRows::row(std::size_t index) {
  while (rows_.size() <= index) rows_.push_back(empty_row_(length_));
  return rows_[index];
}

void ShardRows::add(int shard) {
  const ShardSum::Block* const left = sum_.left_of(1);
  const torch::Tensor to = left != nullptr ? left->row : row(sum_.blocks().size());
  std::int64_t at = 0;
  for (const torch::Tensor& parameter : parameters_) {
    const torch::Tensor values = to.narrow(0, at, parameter.numel()).view(parameter.sizes());
    at += parameter.numel();
    torch::Tensor gradient = parameter.grad();
    // Also zeros are added, because -0 + 0 is 0, on whichever rank the shards are added.
    if (!gradient.defined()) gradient = torch::zeros({}, values.options());
    if (gradient.is_sparse()) gradient = gradient.to_dense();
    if (left == nullptr) {
      values.copy_(gradient);
    } else {
      values.add_(gradient);
    }
  }
  sum_.add({shard, 1, left != nullptr ? torch::Tensor() : to});
}

torch::Tensor ShardRows::over_ranks(int shards, const std::string& name, Context& context) {
  if (context.size() == 1) return std::move(sum_).total();
  const torch::Tensor slice = slice_over_ranks(shards, name, context);
  // All ranks have received their slices of this row.
  const torch::Tensor& sum = row(0);
  run_into(sum, OpKind::allgather, name + "/sum", {}, slice, context);
  return sum;
}

/// Returns what this rank's slice of all shards adds up to.
torch::Tensor ShardRows::slice_over_ranks(int shards, const std::string& name, Context& context) {
  const int ranks = context.size();
  const auto slice_begin = [&](int rank) { return length_ * rank / ranks; };
  const std::int64_t length = slice_begin(context.rank() + 1) - slice_begin(context.rank());
  std::vector<ShardSum> sizes(static_cast<std::size_t>(ranks));
  std::size_t blocks = 0;
  std::size_t rounds = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    ShardSum& of_rank = sizes[static_cast<std::size_t>(rank)];
    const ShardNumbers numbers = shards_of_rank(shards, rank, ranks);
    for (int shard = numbers.begin; shard < numbers.end; ++shard) of_rank.add({shard, 1, {}});
    blocks += of_rank.blocks().size();
    rounds = std::max(rounds, of_rank.blocks().size());
  }
  const auto elements = static_cast<std::int64_t>(blocks) * length;
  if (!received_.defined() || received_.numel() != elements) received_ = empty_row_(elements);
  // In each round every rank sends one of its blocks, if it has one left.
  std::vector<std::vector<torch::Tensor>> slices(rounds);
  std::int64_t at = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::int64_t begin = at;
    for (const ShardSum& of_rank : sizes) {
      const bool has_one = round < of_rank.blocks().size();
      slices[round].push_back(received_.narrow(0, at, has_one ? length : 0));
      at += has_one ? length : 0;
    }
    std::vector<std::int64_t> splits;
    const bool sends = round < sum_.blocks().size();
    for (int rank = 0; rank < ranks; ++rank) {
      splits.push_back(sends ? slice_begin(rank + 1) - slice_begin(rank) : 0);
    }
    const torch::Tensor input = sends ? sum_.blocks()[round].row : received_.narrow(0, 0, 0);
    run_into(received_.narrow(0, begin, at - begin), OpKind::alltoall,
             fmt::format("{}/slices/{}", name, round), std::move(splits), input, context);
  }
  ShardSum sum;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto& of_rank = sizes[rank].blocks();
    for (std::size_t i = 0; i < of_rank.size(); ++i) {
      sum.add({of_rank[i].begin, of_rank[i].size, slices[i][rank]});
    }
  }
  return std::move(sum).total();
}

}  // namespace hvd::detail
