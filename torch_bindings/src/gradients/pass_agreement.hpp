// Lets the ranks agree about each reduction of an optimizer's gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/types.h>

#include <hvd/torch/collectives.hpp>

namespace hvd::detail {

/// Finds out, once per reduction, whether all ranks are in the same backward pass of the same step,
/// which parameters any of them has used, and whether the ranks' parameters are still equal. This
/// takes one small allreduce, which the engine can fuse with f32 gradients, and which is omitted
/// when there is one rank.
class PassAgreement {
 public:
  /// `buffer_for` returns an uninitialised row of f32 of that many elements. If `compares_corners`,
  /// every reduction compares two elements of each parameter that is in host memory. That finds
  /// ranks which have stepped more often than others. `Config::check_replicas_every` makes some
  /// reductions compare all elements.
  template <class Allocate>
  PassAgreement(Context& context, std::int32_t process_set, std::vector<torch::Tensor> parameters,
                bool compares_corners, const Allocate& buffer_for)
      : ranks_(context.ranks_of(process_set)),
        parameters_(std::move(parameters)),
        compares_corners_(compares_corners),
        check_every_(context.config().check_replicas_every),
        used_(parameters_.size()) {
    if (ranks_.size() > 1) message_ = buffer_for(length());
  }

  /// Reads the parameters, if it has not done so since the last `start`. It must be called before
  /// anything changes them in this reduction.
  void read_parameters();
  /// Begins a reduction in which this rank has used no parameter yet. `steps` have ended since the
  /// reduction before, and `pass` is the number of the pass in this step. Steps are not counted
  /// from the beginning, because a rank that has joined misses some.
  void begin(std::int64_t steps, std::int64_t pass);
  void use(std::size_t parameter) { used_[parameter] = 1; }
  /// Submits the allreduce. `reduction` has the scales of the gradients' reduction, since only
  /// equal ones are fused. Collective.
  void start(const AllreduceOptions& reduction);
  /// Waits for the allreduce. Throws Errc::mismatch, with the same text on every rank, when ranks
  /// are in different passes or have different parameters. `owner` begins the message.
  void finish(std::string_view owner);
  /// Returns whether any rank has used the parameter. Must be called after `finish`.
  [[nodiscard]] bool is_used(std::size_t parameter) const { return used_[parameter] != 0; }

 private:
  /// What one rank has sent.
  struct Pass {
    int rank;
    std::int64_t steps;
    std::int64_t pass;
    std::int64_t corners;     ///< a digest; 0: none
    std::int64_t parameters;  ///< the same
  };

  [[nodiscard]] std::size_t numbers_of_a_rank() const noexcept;
  [[nodiscard]] std::size_t length() const noexcept;
  [[nodiscard]] std::vector<Pass> received() const;
  void compare_passes(const std::vector<Pass>& passes, std::string_view owner) const;
  void compare_digests(const std::vector<Pass>& passes, std::int64_t Pass::*digest,
                       std::string_view owner) const;

  std::vector<int> ranks_;
  std::vector<torch::Tensor> parameters_;
  bool compares_corners_;
  int check_every_;    ///< reductions; 0: never
  int unchecked_ = 0;  ///< reductions since the last one that compared all elements
  bool has_read_ = false;
  std::uint64_t corners_ = 0;                ///< a digest of this rank's
  std::optional<std::uint64_t> elements_{};  ///< likewise
  std::vector<float> used_;                  ///< not 0 for parameters in use
  std::int64_t steps_ = 0;
  std::int64_t pass_ = 0;
  torch::Tensor message_;
  TensorWork exchange_;
};

}  // namespace hvd::detail
