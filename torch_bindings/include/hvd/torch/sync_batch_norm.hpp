// Declares batch normalization with the statistics of all ranks' batches.
#pragma once

#include <cstdint>
#include <memory>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>

#include <hvd/core/context.hpp>

namespace hvd {

struct SyncBatchNormScope {
  std::int32_t process_set = 0;  ///< the ranks whose batches are normalized together
  Context* context =
      nullptr;  ///< null: the default context. Must outlive the module and its graphs.
  /// The optimizer is `weighted`, and its weights are proportional to the ranks' numbers of values
  /// per channel, as numbers of rows are. `backward` then weighs the ranks likewise.
  bool weighted = false;
};

/// Replaces `torch::nn::BatchNorm1d`, `2d` and `3d` for inputs of shape [N, C, …]. Mean and
/// variance are taken over the batches of all ranks, so the result equals that of one process with
/// the concatenated batches. The ranks' batches may differ in size and be empty. It works on the
/// CPU and on CUDA, and computes f16 and bf16 in f32.
///
/// Gradients are those of the sum of the ranks' losses, so averaged ones are those of the mean of
/// the losses. With the option `weighted` they are those of the weighted mean, which is the mean
/// over all rows if each loss is the mean over its rank's rows.
///
/// In training, `forward` and `backward` are collective, with one exchange each. In `forward` each
/// rank sends 2 · C + 1 numbers, and the variances are combined as in Chan, Golub & LeVeque 1979.
/// Weight and bias get the gradients of this rank's batch, which the optimizer reduces with all
/// others. Running statistics are equal on all ranks. If one rank calls `backward()`, every rank
/// must call it, also one with an empty batch. A backward pass throws Errc::not_initialized when
/// the default context of its forward pass has ended. In evaluation mode nothing is sent, unless
/// the layer keeps no running statistics.
///
/// Parameters and buffers have the same names as in LibTorch's layers, so that either can load the
/// other's checkpoint.
///
/// With NCCL the host waits only until an exchange is launched, and the current stream waits for
/// its result. If an exchange fails after its launch, what the device computes from it is wrong,
/// also the running statistics, and a later collective or the shutdown throws the error. With
/// HVD_STREAM_ORDERED=0, in elastic jobs, and on a rank with fewer than 2 values per channel the
/// host waits for the result.
///
/// `forward` throws Errc::invalid_argument for an input with another
/// number of channels or fewer than 2 dimensions, and on every rank when all batches together have
/// fewer than 2 values per channel.
class SyncBatchNormImpl
    : public torch::nn::NormImplBase<1, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& settings,
                             const SyncBatchNormScope& scope = {});

  torch::Tensor forward(const torch::Tensor& input);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

 private:
  friend torch::nn::Sequential convert_sync_batch_norm(const torch::nn::Sequential& modules,
                                                       const SyncBatchNormScope& scope);
  /// Returns the replacement of a `BatchNorm` layer, or `module` itself when it is none.
  [[nodiscard]] static torch::nn::AnyModule converted(const torch::nn::AnyModule& module,
                                                      const SyncBatchNormScope& scope);
  void _check_input_dim(const torch::Tensor& input) override;
  [[nodiscard]] Context& context() const;
  [[nodiscard]] std::string exchange_name();
  void update_running(const torch::Tensor& mean, const torch::Tensor& variance,
                      const torch::Tensor& count);

  SyncBatchNormScope scope_;
  /// The number in the names of the exchanges. The ranks agree on it before their first exchange in
  /// each default context.
  std::int64_t instance_ = -1;
  std::weak_ptr<const void>
      agreed_in_;  ///< expires with the context where `instance_` was agreed on
};
TORCH_MODULE(SyncBatchNorm);

/// Returns the same modules in the same order and under the same names, but with each
/// `BatchNorm1d`, `2d` and `3d` replaced by a `SyncBatchNorm`. It shares the parameters and buffers
/// of the layer, so an optimizer that has them remains valid. Layers that are members of other
/// modules have a fixed type and cannot be replaced: declare those as `hvd::SyncBatchNorm`. That
/// includes layers of a class derived from `torch::nn::Sequential`, which itself cannot be inside
/// another one. When such layers are left, the first rank writes a warning, or each process if
/// there are no ranks yet.
[[nodiscard]] torch::nn::Sequential convert_sync_batch_norm(const torch::nn::Sequential& modules,
                                                            const SyncBatchNormScope& scope = {});

}  // namespace hvd
