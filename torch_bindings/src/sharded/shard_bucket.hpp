// Holds a bucket of parameters in contiguous memory, of which each rank owns a shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Stream.h>
#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/named_tensors.hpp>
#include <hvd/torch/sharded_optimizer.hpp>
#include <hvd/torch/tensor_work.hpp>

#include "collectives/operation.hpp"
#include "gradients/gradient_placement.hpp"

namespace hvd::detail {

/// The consecutive parameters `begin`, …, `end - 1`.
struct BucketRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Divides the parameters into buckets of at most `bytes`, from the last parameter to the first,
/// because gradients arrive in that order. The parameters of a bucket have the same dtype and
/// device. A larger parameter has a bucket of its own.
[[nodiscard]] std::vector<BucketRange> bucket_ranges(const NamedTensors& parameters,
                                                     std::int64_t bytes);

/// The elements `begin`, …, `begin + count - 1` of a bucket.
struct ShardRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Returns the shard of rank `index` of `size` in a bucket of `elements`, as a reducescatter
/// divides them: the first `elements % size` ranks have one more.
[[nodiscard]] ShardRange shard_range(std::int64_t elements, std::int64_t index, std::int64_t size);

/// Elements of a bucket that the optimizer of this rank steps as one parameter.
struct ShardPart {
  std::int64_t begin = 0;  ///< the index in the bucket of the first element
  torch::Tensor values;    ///< a copy of the parameter values
};

/// The parameters, gradients and collectives of one bucket. One thread at a time may use it.
class ShardBucket {
 public:
  /// Moves the parameters' values into the bucket and makes the parameters views of it. The
  /// context, the placement and the options must outlive the bucket. `group` is the parameter group
  /// of all parameters in the bucket. With `mirrors`, this rank also steps the shard of the rank
  /// before it.
  ShardBucket(Context& context, const GradientPlacement& placement, std::string name,
              std::size_t group, const ShardedOptimizerOptions& options, const RankInSet& rank,
              std::vector<NamedTensors::Item> parameters, bool mirrors);

  /// Returns the parts that the optimizer steps: the shard of this rank and, if it mirrors one,
  /// that of the rank before it.
  [[nodiscard]] const std::vector<ShardPart>& parts() const noexcept { return parts_; }
  [[nodiscard]] const torch::Tensor& shard() const noexcept { return parts_.front().values; }
  [[nodiscard]] const std::vector<NamedTensors::Item>& parameters() const noexcept {
    return parameters_;
  }
  [[nodiscard]] std::size_t group() const noexcept { return group_; }
  /// Returns the index in the bucket of the parameter's first element.
  [[nodiscard]] std::int64_t offset_of(std::size_t parameter) const { return offsets_[parameter]; }
  [[nodiscard]] std::int64_t elements() const noexcept { return values_.numel(); }

  /// Returns whether the bucket has the parameter's gradient, or has been sent without it.
  [[nodiscard]] bool has(std::size_t parameter) const { return filled_[parameter] || is_sent_; }
  /// Copies a gradient that the bucket does not have, multiplies the copy by `factor`, and sends
  /// the bucket after the last gradient.
  void add(std::size_t parameter, const torch::Tensor& gradient, double factor);
  /// Starts the reducescatter of the gradients, with zeros for missing ones, unless it has started
  /// or has failed to.
  void send();
  /// Returns whether a gradient has arrived since the last step.
  [[nodiscard]] bool begun() const noexcept { return gradients_.defined() || is_sent_; }
  /// Waits for this rank's part of the reduced gradients.
  [[nodiscard]] torch::Tensor gradient();
  /// Starts to send this rank's part of the reduced gradients to the rank that mirrors its shard,
  /// and to receive that of the rank before it.
  void send_to_mirror();
  /// Waits until this rank has the gradients of all its parts, and returns them.
  [[nodiscard]] std::vector<torch::Tensor> gradients();
  /// Copies the parameters to the parts, because the program may have changed them. A parameter
  /// whose memory was replaced by loading becomes a view of the bucket again. Throws
  /// Errc::invalid_argument when a parameter has another dtype or device than before.
  void update_parts();
  /// Sets all parameters of the bucket.
  void set_values(const torch::Tensor& values);
  /// Gives parameters that require no gradient the values of `before`, which has the shape of the
  /// part. Momentum and weight decay change them, because the optimizer sees the whole part as one
  /// parameter.
  void keep_frozen(const ShardPart& part, const torch::Tensor& before) const;
  /// Starts the allgather of the shards into the parameters. Frozen parameters keep their values.
  void gather();
  /// Waits until the parameters hold the shards of all ranks.
  void finish();
  /// Drops all gradients. Their reduction must have ended.
  void drop_gradients();

 private:
  void move_here(std::size_t parameter);
  void note_stream(const c10::Stream& stream);
  void wait_for_copies();

  Context& context_;
  const GradientPlacement& placement_;
  const std::string name_;
  const std::size_t group_;
  const ShardedOptimizerOptions& options_;
  std::vector<NamedTensors::Item> parameters_;
  std::vector<std::int64_t> offsets_;
  torch::Tensor values_;
  std::vector<ShardPart> parts_;
  std::vector<std::int64_t> mirror_splits_;  ///< the elements that each rank gets from this one

  torch::Tensor gradients_;           ///< the gradients that have not been sent
  std::vector<c10::Stream> streams_;  ///< those on which they were copied, on a device
  std::vector<bool> filled_;
  /// This is set also when the submission fails. A second attempt could succeed, after the
  /// operation that bears the same name has ended, and would then match the next step of the other
  /// ranks.
  bool is_sent_ = false;
  TensorWork reduction_;
  AlltoallWork mirroring_;
  Work gathering_;
};

}  // namespace hvd::detail
