// Exchanges facts about the gradients among an optimizer's ranks in its first step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/tensor_work.hpp>

namespace hvd::detail {

/// Finds out which parameters have sparse gradients, for ranks that have no gradient yet, and
/// whether all ranks have the same gradients, bit by bit, which suggests that they read the same
/// data. A rank that has joined before its first step takes part later, so the exchange is repeated
/// in every step until all ranks have taken part in the same one.
class FirstStepExchange {
 public:
  FirstStepExchange(Context& context, std::int32_t process_set, std::size_t parameters);

  /// Adds this rank's gradient of a parameter, before it is reduced. One thread at a time calls it.
  void add(std::size_t parameter, const torch::Tensor& gradient);
  /// Submits an allreduce, in which ranks that have joined take part as well. Collective.
  void start(const std::string& name);
  /// Waits for the allreduce.
  void finish();

  /// Returns whether all ranks took part in the last exchange, so that none needs another one.
  [[nodiscard]] bool is_complete() const noexcept { return is_complete_; }
  /// Returns whether any rank's gradient of the parameter is sparse. Must be called after `finish`.
  [[nodiscard]] bool is_sparse(std::size_t parameter) const { return sparse_[parameter] == 1; }
  /// Returns whether several ranks had gradients that were not all zeros, and all had the same.
  /// Must be called after `finish`.
  [[nodiscard]] bool all_are_equal() const noexcept { return all_are_equal_; }

 private:
  Context& context_;
  const std::int32_t process_set_;
  std::vector<std::int64_t> sparse_;  ///< 0 or 1 for each parameter
  TensorWork exchange_;
  std::uint64_t digest_ = 0;
  bool nonzero_ = false;
  bool all_are_equal_ = false;
  bool is_complete_ = false;
};

}  // namespace hvd::detail
