// Exchanges facts about the gradients among an optimizer's ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/tensor_work.hpp>

namespace hvd::detail {

/// Finds out which parameters have sparse gradients, for ranks that have no gradient yet. Until all
/// ranks have taken part in the same exchange, it also finds out whether all have the same
/// gradients, bit by bit, which suggests that they read the same data. A rank that has joined
/// before its first step takes part later. Ranks send all that they know, so that a rank which was
/// away learns it too.
class LayoutExchange {
 public:
  LayoutExchange(Context& context, std::int32_t process_set, std::size_t parameters);

  /// Adds this rank's gradient of a parameter, before it is reduced. One thread at a time calls it.
  void add(std::size_t parameter, const torch::Tensor& gradient);
  /// Submits an allreduce, in which ranks that have joined take part as well. Collective.
  void start(const std::string& name);
  /// Waits for the allreduce. Returns whether there was one.
  [[nodiscard]] bool finish();

  /// Returns whether all ranks took part in the last exchange. What they know is the same then.
  [[nodiscard]] bool is_complete() const noexcept { return is_complete_; }
  /// Returns whether any rank had a gradient of the parameter by the last exchange.
  [[nodiscard]] bool is_known(std::size_t parameter) const { return agreed_[parameter] != 0; }
  /// Returns whether any rank's gradient of the parameter was sparse by the last exchange.
  [[nodiscard]] bool is_sparse(std::size_t parameter) const {
    return agreed_[parameter] == kSparse;
  }
  /// Returns whether, in the last exchange, several ranks had gradients that were not all zeros,
  /// and all had the same.
  [[nodiscard]] bool all_are_equal() const noexcept { return all_are_equal_; }

 private:
  // The layout of a parameter's gradients is 0 as long as it is unknown.
  static constexpr std::int64_t kDense = 1;
  static constexpr std::int64_t kSparse = 2;

  Context& context_;
  const std::int32_t process_set_;
  std::vector<std::int64_t> mine_;    ///< the layouts that this rank has seen or been told
  std::vector<std::int64_t> agreed_;  ///< those of the last exchange
  TensorWork exchange_;               ///< valid from `start` to `finish`
  std::uint64_t digest_ = 0;
  bool nonzero_ = false;
  bool all_are_equal_ = false;
  bool is_complete_ = false;
  bool was_complete_ = false;  ///< all ranks took part in the last exchange or an earlier one
};

}  // namespace hvd::detail
