// Saves the whole state of a sharded optimizer, by parameter, and loads it.
#pragma once

#include <cstdint>
#include <deque>

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <hvd/core/context.hpp>

#include "sharded/shard_bucket.hpp"

namespace hvd::detail {

/// Writes the state of all ranks of the process set into the archive of its first rank, or into
/// those of all. Collective.
void save_sharded_state(Context& context, std::int32_t process_set,
                        const std::deque<ShardBucket>& buckets,
                        const torch::optim::Optimizer& optimizer,
                        torch::serialize::OutputArchive& archive, bool on_all_ranks);

/// Makes the state that the optimizer has before its first step, when its parameters were replaced.
void begin_state(torch::optim::Optimizer& optimizer);

/// Loads this rank's part of the state. Throws Errc::invalid_argument before it changes anything.
void load_sharded_state(const std::deque<ShardBucket>& buckets, torch::optim::Optimizer& optimizer,
                        torch::serialize::InputArchive& archive);

}  // namespace hvd::detail
