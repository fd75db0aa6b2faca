// Lets the ranks agree about each reduction of an optimizer's gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include <hvd/torch/collectives.hpp>

namespace hvd::detail {

/// Finds out, once per reduction, whether all ranks are in the same backward pass of the same step,
/// and which parameters any of them has used. In every `check_replicas_every`-th reduction it also
/// compares digests of the ranks' parameters. This takes one small allreduce, which the engine can
/// fuse with f32 gradients, and which is omitted when there is one rank.
class PassAgreement {
 public:
  /// `buffer_for` returns an uninitialised row of f32 of that many elements.
  template <class Allocate>
  PassAgreement(Context& context, std::int32_t process_set, std::size_t parameters,
                const Allocate& buffer_for)
      : ranks_(context.ranks_of(process_set)),
        check_every_(context.config().check_replicas_every),
        used_(parameters) {
    if (ranks_.size() > 1) message_ = buffer_for(length());
  }

  /// Begins a reduction in which this rank has used no parameter yet. `steps` have ended since the
  /// reduction before, and `pass` is the number of the pass in this step. Steps are not counted
  /// from the beginning, because a rank that has joined misses some.
  void begin(std::int64_t steps, std::int64_t pass);
  void use(std::size_t parameter) { used_[parameter] = 1; }
  /// Returns whether the next reduction compares digests, and this rank has not given its own yet.
  [[nodiscard]] bool wants_digest() const noexcept {
    return message_.defined() && check_every_ > 0 && unchecked_ + 1 >= check_every_ && !digest_;
  }
  void set_digest(std::uint64_t digest) { digest_ = digest; }
  /// Submits the allreduce. `reduction` has the scales of the gradients' reduction, since only
  /// equal ones are fused. Collective.
  void start(const AllreduceOptions& reduction);
  /// Waits for the allreduce. Throws Errc::mismatch, with the same text on every rank, when ranks
  /// are in different passes or have different digests. `owner` begins the message.
  void finish(std::string_view owner);
  /// Returns whether any rank has used the parameter. Must be called after `finish`.
  [[nodiscard]] bool is_used(std::size_t parameter) const { return used_[parameter] != 0; }

 private:
  /// What one rank has sent.
  struct Pass {
    int rank;
    std::int64_t steps;
    std::int64_t pass;
    std::int64_t digest;  ///< 0: none
  };

  [[nodiscard]] std::size_t numbers_of_a_rank() const noexcept;
  [[nodiscard]] std::size_t length() const noexcept;
  [[nodiscard]] std::vector<Pass> received() const;
  void compare_passes(const std::vector<Pass>& passes, std::string_view owner) const;
  void compare_digests(const std::vector<Pass>& passes, std::string_view owner);

  std::vector<int> ranks_;
  int check_every_;    ///< reductions; 0: never
  int unchecked_ = 0;  ///< reductions since the last one that compared digests
  std::optional<std::uint64_t> digest_{};
  std::vector<float> used_;  ///< not 0 for parameters in use
  std::int64_t steps_ = 0;
  std::int64_t pass_ = 0;
  torch::Tensor message_;
  TensorWork exchange_;
};

}  // namespace hvd::detail
