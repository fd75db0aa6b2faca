// Reducing gradients in fewer bytes than they have; for your own kinds, too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/tensor_work.hpp>

namespace hvd {

/// How a compressed gradient talks to the other ranks: collectives among those that train the
/// parameter. `topic` tells the messages of one gradient apart; ranks use the same in the same
/// order.
class GradientExchange {
 public:
  GradientExchange(Context& context, std::string name, std::int32_t process_set);

  [[nodiscard]] TensorWork average(const torch::Tensor& tensor, std::string_view topic) const;
  /// One after another along the first dimension.
  [[nodiscard]] TensorWork gather(const torch::Tensor& tensor, std::string_view topic) const;
  [[nodiscard]] int ranks() const;

 private:
  Context& context_;
  std::string name_;
  std::int32_t process_set_;
};

/// One parameter's gradient, step after step. It keeps what it needs in between, such as the error
/// that compression made, to be added to the next gradient.
class CompressedGradient {
 public:
  virtual ~CompressedGradient() = default;
  /// The gradient, dense and on the parameter's device, is ready: compresses it and submits what
  /// comes first. On the thread of the hook; does not wait.
  virtual void begin(const GradientExchange& exchange, const torch::Tensor& gradient) = 0;
  /// Waits for what was submitted, then submits what comes next; or writes the average over the
  /// ranks into `gradient`, the same bits on all, and returns true. On the training thread; for all
  /// parameters in turn, in the same order on all ranks.
  [[nodiscard]] virtual bool go_on(const GradientExchange& exchange,
                                   const torch::Tensor& gradient) = 0;
};

/// A kind of compression, given to any number of optimizers.
class GradientCompressor {
 public:
  virtual ~GradientCompressor() = default;
  /// Null: this parameter's gradients are reduced as they are. Must not depend on the rank.
  [[nodiscard]] virtual std::unique_ptr<CompressedGradient> make(
      const torch::Tensor& parameter) const = 0;
  /// In a message, and to find ranks that have another kind or other settings.
  [[nodiscard]] virtual std::string description() const = 0;
};

/// The largest elements of each rank, by magnitude, with error feedback (Aji & Heafield 2017,
/// "Sparse communication for distributed gradient descent"; Stich et al. 2018, "Sparsified SGD with
/// memory"). `ratio` of the elements, at least one; in (0, 1]. Parameters of fewer than `min_count`
/// elements are reduced as they are.
[[nodiscard]] std::shared_ptr<const GradientCompressor> top_k(double ratio,
                                                              std::int64_t min_count = 1024);

/// A matrix of low rank, with error feedback (Vogels, Karimireddy & Jaggi 2019, "PowerSGD",
/// algorithms 1 and 2, with a warm start). Of a gradient with more than two dimensions all but the
/// first are taken as one. `rank` is positive; vectors, and matrices that would not shrink, are
/// reduced as they are.
[[nodiscard]] std::shared_ptr<const GradientCompressor> power_sgd(int rank, std::uint64_t seed = 1);

}  // namespace hvd
