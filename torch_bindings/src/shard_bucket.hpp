// Some parameters in one piece of memory, of which each rank has a shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/named_tensors.hpp>
#include <hvd/torch/sharded_optimizer.hpp>
#include <hvd/torch/tensor_work.hpp>

#include "gradient_home.hpp"

namespace hvd {

/// Of the ranks that share the parameters, in order.
struct ShardPlace {
  std::int64_t rank = 0;
  std::int64_t ranks = 1;
};

/// Neighbours in the list of parameters: `begin`, …, `end - 1`.
struct BucketRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// From the last parameter to the first, since gradients come in that order. Parameters of one
/// bucket have one dtype and device; one that is larger than `bytes` is alone.
[[nodiscard]] std::vector<BucketRange> bucket_ranges(const NamedTensors& parameters,
                                                     std::int64_t bytes);

/// One thread at a time.
class ShardBucket {
 public:
  /// Moves the parameters' values here and makes them views of it. What is referred to outlives it.
  ShardBucket(Context& context, const GradientHome& home, std::string name, std::size_t group,
              const ShardedOptimizerOptions& options, const ShardPlace& place,
              std::vector<NamedTensors::Item> parameters);

  /// This rank's part of the values, in memory of its own: what the optimizer steps.
  [[nodiscard]] const torch::Tensor& shard() const noexcept { return shard_; }
  [[nodiscard]] const std::vector<NamedTensors::Item>& parameters() const noexcept {
    return parameters_;
  }
  /// The parameter group that all of them are in.
  [[nodiscard]] std::size_t group() const noexcept { return group_; }
  /// Where the parameter's elements begin in the bucket.
  [[nodiscard]] std::int64_t offset_of(std::size_t parameter) const { return offsets_[parameter]; }
  /// Where the shard begins in the bucket.
  [[nodiscard]] std::int64_t shard_begin() const noexcept { return begin_; }

  /// The parameter's gradient has been taken, or the bucket sent without it.
  [[nodiscard]] bool has(std::size_t parameter) const {
    return filled_[parameter] || reduction_.valid();
  }
  /// Takes the gradient of a parameter that it does not have, and sends the bucket with the last.
  void add(std::size_t parameter, const torch::Tensor& gradient);
  /// Sends it with zeros for what is missing, unless it is on its way.
  void send();
  /// A gradient has come since the last step.
  [[nodiscard]] bool begun() const noexcept { return gradients_.defined() || reduction_.valid(); }
  /// Waits for this rank's part of the reduced gradients.
  [[nodiscard]] torch::Tensor gradient();
  /// The shard becomes this rank's part of what the parameters are now: the user may have changed
  /// them, or loaded others, which takes them out of the bucket. Throws Errc::invalid_argument when
  /// one has another dtype or device than before.
  void take_values();
  /// Gives all ranks this rank's shard; what is frozen keeps its values.
  void spread();
  /// Waits until the parameters hold what all ranks gave.
  void finish();
  /// Drops gradients that were not stepped with, which have been reduced.
  void forget();

 private:
  void move_here(std::size_t parameter);
  void keep_frozen();

  Context& context_;
  const GradientHome& home_;
  const std::string name_;
  const std::size_t group_;
  const ShardedOptimizerOptions& options_;
  std::vector<NamedTensors::Item> parameters_;
  std::vector<std::int64_t> offsets_;
  std::int64_t begin_ = 0;
  torch::Tensor values_;
  torch::Tensor shard_;

  torch::Tensor gradients_;  ///< until they are sent
  std::vector<bool> filled_;
  TensorWork reduction_;
  Work gathering_;
};

}  // namespace hvd
