#include "shard_check.hpp"

#include <hvd/torch.hpp>

namespace mnist {

bool ShardCheck::disjoint(std::int64_t padding, bool complete) {
  const torch::Tensor uses = hvd::allreduce(uses_, {.name = "shards", .op = hvd::ReduceOp::sum});
  uses_.zero_();
  const auto used = uses.count_nonzero().item<std::int64_t>();
  const auto repeated = uses.sum().item<std::int64_t>() - used;
  return repeated <= padding && (!complete || used == uses.size(0));
}

}  // namespace mnist
