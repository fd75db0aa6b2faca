// Batch normalization over the batches of all ranks.
#pragma once

#include <cstdint>
#include <memory>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>

#include <hvd/core/context.hpp>

namespace hvd {

struct SyncBatchNormScope {
  std::int32_t process_set = 0;  ///< whose batches are one
  Context* context = nullptr;    ///< null: the default context. Outlives the module and its graphs.
};

/// As `torch::nn::BatchNorm1d`, `2d` and `3d` for inputs of [N, C, …], with the mean and variance
/// of the ranks' batches together: equal to one process with the batches one after another. Ranks
/// may have different batches, also empty ones. On the CPU and CUDA. f16 and bf16 are computed in
/// f32.
///
/// In training, `forward` and `backward` are collective, one exchange each: 2 · C + 1 numbers per
/// rank, the variances combined as in Chan, Golub & LeVeque 1979. Weight and bias get the gradients
/// of this rank's batch, which the optimizer reduces with all others; running statistics are equal
/// on all ranks. Every rank calls `backward()` if one does; one with an empty batch, too. In
/// evaluation nothing is sent, but where no running statistics are kept.
///
/// Parameters and buffers are named as LibTorch's, so that states can be exchanged with it.
/// `forward` throws Errc::invalid_argument for inputs of other channels or fewer than 2 dimensions,
/// and on every rank when there are fewer than 2 values per channel in all.
class SyncBatchNormImpl
    : public torch::nn::NormImplBase<1, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& settings,
                             const SyncBatchNormScope& scope = {});

  torch::Tensor forward(const torch::Tensor& input);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  /// `module`, or what replaces it; see `convert_sync_batch_norm`.
  [[nodiscard]] static torch::nn::AnyModule converted(const torch::nn::AnyModule& module,
                                                      const SyncBatchNormScope& scope);

 private:
  void _check_input_dim(const torch::Tensor& input) override;
  [[nodiscard]] Context& context() const;
  [[nodiscard]] std::string exchange_name();
  void update_running(const torch::Tensor& mean, const torch::Tensor& variance, double count);

  SyncBatchNormScope scope_;
  std::int64_t instance_ = -1;  ///< in the names of the exchanges; agreed at the first one
};
TORCH_MODULE(SyncBatchNorm);

/// The same modules in the same order and under the same names, with each `BatchNorm1d`, `2d`,
/// `3d` replaced by a `SyncBatchNorm` that shares its parameters and
/// buffers, so that an optimizer that has them already stays right. Members of other modules have
/// the type LibTorch gave them and cannot be replaced: declare those as `hvd::SyncBatchNorm`.
[[nodiscard]] torch::nn::Sequential convert_sync_batch_norm(const torch::nn::Sequential& modules,
                                                            const SyncBatchNormScope& scope = {});

}  // namespace hvd
