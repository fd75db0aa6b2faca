// The state of a sharded optimizer, whole and by parameter, in an archive.
#pragma once

#include <cstdint>
#include <deque>

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <hvd/core/context.hpp>

#include "shard_bucket.hpp"

namespace hvd {

/// Collective among the ranks of the set; fills the first one's archive.
void save_sharded_state(Context& context, std::int32_t process_set,
                        const std::deque<ShardBucket>& buckets,
                        const torch::optim::Optimizer& optimizer,
                        torch::serialize::OutputArchive& archive);

/// Takes this rank's part of it. Throws Errc::invalid_argument before it changes anything.
void load_sharded_state(const std::deque<ShardBucket>& buckets, torch::optim::Optimizer& optimizer,
                        torch::serialize::InputArchive& archive);

}  // namespace hvd
