// Weighs the gradients of each rank in the mean over the ranks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <torch/types.h>

#include <hvd/ops/collectives.hpp>
#include <hvd/torch/tensor_work.hpp>

#include "collectives/first_error.hpp"

namespace hvd::detail {

/// Multiplies floating elements in place and returns them. The factor 0 makes them 0, also where
/// they are not finite.
inline torch::Tensor scale_(torch::Tensor values, double factor) {
  if (factor == 0) return values.zero_();
  return factor == 1 ? values : values.mul_(factor);
}

/// The mean over the ranks is a sum of gradients that the ranks have multiplied by their shares.
template <class Options>
[[nodiscard]] Options with_op_of_shares(Options options) {
  if (options.weighted) options.op = ReduceOp::sum;
  return options;
}

/// Finds the share of this rank's weight in the weights of all ranks, once per reduction. This
/// takes an allreduce of one number. A share is at most 1, so gradients that are multiplied by it
/// do not overflow. One thread at a time may use it.
class GradientWeight {
 public:
  /// `prefix` begins the name of the allreduce, and `owner` the messages.
  GradientWeight(Context& context, std::int32_t process_set, const std::string& prefix,
                 std::string_view owner)
      : options_{.name = prefix + "/weight",
                 .op = ReduceOp::sum,
                 .process_set = process_set,
                 .context = &context},
        owner_(owner) {}

  /// Submits the allreduce. Throws Errc::invalid_argument, before anything is sent, for a weight
  /// that is negative or not finite, and for a second weight of one reduction. Collective.
  void set(double weight);
  /// Returns this rank's weight divided by the sum of all weights. The first call in a reduction
  /// waits for the sum. If there is no mean, `error` gets the reason, and the share is 0.
  double share(FirstError& error) noexcept;
  /// Ends the reduction. The next one needs another weight.
  void finish(FirstError& error) noexcept;
  /// Returns the share in the reduction that has ended last, or for which `share` was called.
  [[nodiscard]] double last_share() const noexcept { return share_; }

 private:
  void submit(double weight);

  const AllreduceOptions options_;
  const std::string_view owner_;
  bool is_set_ = false;
  double weight_ = 0;
  double share_ = 0;
  TensorWork sum_;  ///< valid until the sum is known
};

}  // namespace hvd::detail
