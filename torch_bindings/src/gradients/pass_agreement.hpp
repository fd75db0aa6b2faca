// Lets the ranks agree about each reduction of an optimizer's gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include <hvd/torch/collectives.hpp>

namespace hvd::detail {

/// Finds out, once per reduction, whether all ranks are in the same backward pass of the same step,
/// and which parameters any of them has used. This takes one small allreduce, which the engine can
/// fuse with f32 gradients, and which is omitted when there is one rank.
class PassAgreement {
 public:
  /// `buffer_for` returns an uninitialised row of f32 of that many elements.
  template <class Allocate>
  PassAgreement(Context& context, std::int32_t process_set, std::size_t parameters,
                const Allocate& buffer_for)
      : ranks_(context.ranks_of(process_set)), used_(parameters) {
    if (ranks_.size() > 1) message_ = buffer_for(length());
  }

  /// Begins a reduction in which this rank has used no parameter yet. `steps` have ended since the
  /// reduction before, and `pass` is the number of the pass in this step. Steps are not counted
  /// from the beginning, because a rank that has joined misses some.
  void begin(std::int64_t steps, std::int64_t pass);
  void use(std::size_t parameter) { used_[parameter] = 1; }
  /// Submits the allreduce. `reduction` has the scales of the gradients' reduction, since only
  /// equal ones are fused. Collective.
  void start(const AllreduceOptions& reduction);
  /// Waits for the allreduce. Throws Errc::mismatch, with the same text on every rank, when ranks
  /// are in different passes. `owner` begins the message.
  void finish(std::string_view owner);
  /// Returns whether any rank has used the parameter. Must be called after `finish`.
  [[nodiscard]] bool is_used(std::size_t parameter) const { return used_[parameter] != 0; }

 private:
  [[nodiscard]] std::size_t length() const noexcept;

  std::vector<int> ranks_;
  std::vector<float> used_;  ///< not 0 for parameters in use
  std::int64_t steps_ = 0;
  std::int64_t pass_ = 0;
  torch::Tensor message_;
  TensorWork exchange_;
};

}  // namespace hvd::detail
